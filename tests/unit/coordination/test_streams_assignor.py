"""Tasks are spread evenly over threads, stay where they are, and have their standbys on other processes."""

from flymq.coordination.entries import StreamsMemberValue, TaskId, TasksValue
from flymq.coordination.streams_assignor import assign_tasks


def tasks(count: int, subtopology: str = "0") -> list[TaskId]:
    return [TaskId(subtopology, number) for number in range(count)]


def members(*names: str, **targets: TasksValue) -> dict[str, StreamsMemberValue]:
    """Members by name; the first letter is their process."""
    return {name: StreamsMemberValue(name[0], target=targets.get(name, TasksValue())) for name in names}


def sizes(found: dict[str, TasksValue]) -> dict[str, int]:
    return {name: len(each.active) for name, each in found.items()}


def test_every_thread_gets_about_the_same_number_of_tasks():
    found = assign_tasks(members("a1", "a2", "b1"), [*tasks(4), *tasks(4, "1")])
    assert sorted(sizes(found).values()) == [2, 3, 3]
    assert sorted(task for each in found.values() for task in each.active) == sorted([*tasks(4), *tasks(4, "1")])


def test_tasks_stay_with_their_member_and_only_as_many_move_as_a_new_one_needs():
    before = assign_tasks(members("a1", "b1"), tasks(8))
    after = assign_tasks(members("a1", "b1", "c1", **before), tasks(8))
    assert sorted(sizes(after).values()) == [2, 3, 3]
    for name in ("a1", "b1"):
        assert set(after[name].active) <= set(before[name].active)
    assert assign_tasks(members("a1", "b1", "c1", **after), tasks(8)) == after


def test_standbys_are_for_tasks_with_state_and_on_another_process():
    found = assign_tasks(members("a1", "a2", "b1"), [*tasks(4), *tasks(4, "1")], stateful=["1"], standbys=1)
    standbys = [task for each in found.values() for task in each.standby]
    assert sorted(standbys) == tasks(4, "1")
    for process in "ab":
        has = [task for name, each in found.items() if name[0] == process for task in (*each.active, *each.standby)]
        assert len(has) == len(set(has))


def test_more_standbys_than_other_processes_cost_no_more_work():
    most = assign_tasks(members("a1", "b1", "c1"), tasks(4), stateful=["0"], standbys=2)
    assert assign_tasks(members("a1", "b1", "c1"), tasks(4), stateful=["0"], standbys=(1 << 31) - 1) == most


def test_the_standby_takes_over():
    before = assign_tasks(members("a1", "b1"), tasks(4), stateful=["0"], standbys=1)
    assert len(before["b1"].standby) == 2
    after = assign_tasks(members("b1", **before), tasks(4), stateful=["0"], standbys=1)
    assert (after["b1"].active, after["b1"].standby) == (tuple(tasks(4)), ())
    three = assign_tasks(members("b1", "c1", **before), tasks(4), stateful=["0"], standbys=1)
    assert set(before["b1"].active) <= set(three["b1"].active)


def test_without_members_nothing_is_assigned():
    assert assign_tasks({}, tasks(4)) == {}
