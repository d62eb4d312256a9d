"""A fetch session remembers what is read and what was told, and is fair."""

from flymq.broker.replicas.partition import PartitionRead
from flymq.gateways.kafka.fetch_session import FetchSession, flatten, next_session
from flymq.model.names import TopicPartition
from flymq.storage.memory_log import MemorySlice
from flymq.wire.kafka.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic


def topic(name: str, *partitions: int, offset: int = 0) -> FetchTopic:
    return FetchTopic(name, partitions=[FetchPartition(number, fetch_offset=offset) for number in partitions])


def keys(session: FetchSession) -> list[tuple[str | bytes, int]]:
    return list(session.partitions)


def read(high_watermark: int, data: bytes | None = None) -> PartitionRead:
    found = None if data is None else MemorySlice(data, offsets=1)
    return PartitionRead(TopicPartition("a", 0), found, high_watermark, high_watermark, 0)


def test_a_request_adds_changes_and_forgets() -> None:
    session = next_session(None)
    session.change([topic("a", 0, 1), topic("b", 0)], [])
    assert keys(session) == [("a", 0), ("a", 1), ("b", 0)]
    session.change([topic("a", 1, offset=7)], [ForgottenTopic("a", partitions=[0])])
    assert keys(session) == [("a", 1), ("b", 0)]
    assert session.partitions["a", 1].request.fetch_offset == 7


def test_only_what_changed_is_news() -> None:
    session = next_session(None)
    session.change([topic("a", 0)], [])
    wanted = session.partitions["a", 0]
    assert wanted.is_news(read(5))
    session.told(wanted, read(5))
    assert not wanted.is_news(read(5))
    assert wanted.is_news(read(6))
    assert wanted.is_news(read(5, b"data"))


def test_who_had_its_share_comes_last() -> None:
    session = next_session(None)
    session.change([topic("a", 0, 1, 2)], [])
    session.told(session.partitions["a", 0], read(1, b"data"))
    session.told(session.partitions["a", 1], read(1))
    assert keys(session) == [("a", 1), ("a", 2), ("a", 0)]


def test_epochs_and_ids_go_round_without_meeting_their_special_values() -> None:
    session = FetchSession((1 << 31) - 1, epoch=(1 << 31) - 1)
    session.advance()
    assert session.epoch == 1
    assert next_session(session).session_id == 1


def test_topics_are_known_by_name_or_by_id() -> None:
    topic_id = bytes(range(16))
    named, by_id = flatten([topic("a", 0), FetchTopic("", topic_id, [FetchPartition(3)])])
    assert (named.key, by_id.key) == (("a", 0), (topic_id, 3))
