"""How many tasks a topology has, which topics it lacks, and which topologies make no sense."""

import pytest

from flymq.coordination.entries import InternalTopicValue, SubtopologyValue, TopologyValue
from flymq.coordination.streams_topology import Status, check_topology, configure
from flymq.model.errors import InvalidTopology


def topology(*subtopologies: SubtopologyValue) -> TopologyValue:
    return TopologyValue(0, subtopologies)


REGROUP = SubtopologyValue("0", ("words",), repartition_sinks=("by-word",))
COUNT = SubtopologyValue(
    "1",
    changelogs=(InternalTopicValue("counts", settings=(("cleanup.policy", "compact"),)),),
    repartition_sources=(InternalTopicValue("by-word"),),
)


def test_internal_topics_get_as_many_partitions_as_what_they_are_made_of():
    found = configure(topology(REGROUP, COUNT), {"words": 3})
    assert found.status is Status.MISSING_INTERNAL_TOPICS
    assert [(topic.name, topic.partitions) for topic in found.missing] == [("by-word", 3), ("counts", 3)]
    assert found.missing[1].settings == (("cleanup.policy", "compact"),)
    ready = configure(topology(REGROUP, COUNT), {"words": 3, "by-word": 3, "counts": 3})
    assert (ready.is_ready, ready.tasks) == (True, {"0": 3, "1": 3})


def test_a_chain_of_repartition_topics_is_resolved_in_any_order():
    last = SubtopologyValue("0", repartition_sources=(InternalTopicValue("b"),))
    middle = SubtopologyValue("1", repartition_sinks=("b",), repartition_sources=(InternalTopicValue("a"),))
    first = SubtopologyValue("2", ("in",), repartition_sinks=("a",))
    found = configure(topology(last, middle, first), {"in": 5})
    assert {topic.name: topic.partitions for topic in found.missing} == {"a": 5, "b": 5}


def test_a_repartition_topic_may_say_how_many_partitions_it_has():
    count = SubtopologyValue("1", repartition_sources=(InternalTopicValue("by-word", 7),))
    found = configure(topology(REGROUP, count), {"words": 3, "by-word": 7})
    assert found.tasks == {"0": 3, "1": 7}
    wrong = configure(topology(REGROUP, count), {"words": 3, "by-word": 6})
    assert wrong.status is Status.INCORRECTLY_PARTITIONED_TOPICS
    assert "by-word has 6 partitions, expected 7" in wrong.detail


def test_a_repartition_topic_gets_the_size_of_the_topic_it_is_joined_with():
    join = SubtopologyValue(
        "1", ("users",), repartition_sources=(InternalTopicValue("by-word"),), copartitioned=(("users", "by-word"),)
    )
    found = configure(topology(REGROUP, join), {"words": 3, "users": 5})
    assert [(topic.name, topic.partitions) for topic in found.missing] == [("by-word", 5)]


def test_topics_that_are_joined_must_have_the_same_size():
    join = SubtopologyValue("0", ("users", "words"), copartitioned=(("users", "words"),))
    found = configure(topology(join), {"users": 2, "words": 3})
    assert found.status is Status.INCORRECTLY_PARTITIONED_TOPICS
    fixed = SubtopologyValue(
        "1", ("users",), repartition_sources=(InternalTopicValue("by-word", 4),), copartitioned=(("users", "by-word"),)
    )
    assert configure(topology(REGROUP, fixed), {"users": 2, "words": 3}).status is found.status


def test_a_topology_that_names_a_topic_very_often_is_checked_in_one_pass():
    often = SubtopologyValue("1", repartition_sources=(InternalTopicValue("by-word"),) * 40_000)  # squared: minutes
    check_topology(topology(REGROUP, often))


def test_source_topics_must_exist():
    found = configure(topology(SubtopologyValue("0", ("a", "b", "c", "d", "e"))), {"a": 1})
    assert (found.status, found.is_ready) == (Status.MISSING_SOURCE_TOPICS, False)
    assert found.detail == "Source topics b, c, d and 1 additional topics are missing."


@pytest.mark.parametrize(
    "wrong",
    [
        topology(SubtopologyValue("0")),
        topology(SubtopologyValue("0", ("in",), changelogs=(InternalTopicValue("state", 3),))),
        topology(COUNT),
        topology(
            SubtopologyValue("0", repartition_sinks=("a",), repartition_sources=(InternalTopicValue("b"),)),
            SubtopologyValue("1", repartition_sinks=("b",), repartition_sources=(InternalTopicValue("a"),)),
        ),
    ],
    ids=["reads nothing", "sizes its changelog", "reads what nobody writes", "goes round in a loop"],
)
def test_a_topology_that_makes_no_sense_is_refused(wrong: TopologyValue):
    with pytest.raises(InvalidTopology):
        check_topology(wrong)


def test_a_topology_of_the_library_is_taken():
    check_topology(topology(REGROUP, COUNT))
