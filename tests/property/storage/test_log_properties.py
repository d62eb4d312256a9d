"""Whatever is done to a log, it behaves like a list: on the real disk, on a simulated one, in memory."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.property.storage.log_model import CONFIG, PRODUCER_IDS, LogBesideList, open_beside_list

from flymq.host.disk import SystemDisk
from flymq.host.simulated_disk import SimulatedDisk
from flymq.record.control import MarkerType
from flymq.storage.log import Log
from flymq.storage.memory_log import MemoryLog

SETTINGS = settings(suppress_health_check=list(HealthCheck), stateful_step_count=30)

producer_ids = st.sampled_from(PRODUCER_IDS)
shares = st.floats(0, 1)


class AnyLog(RuleBasedStateMachine):
    """What every log offers."""

    def __init__(self) -> None:
        super().__init__()
        self.both = self.begin()

    def begin(self) -> LogBesideList:
        raise NotImplementedError

    def offset(self, share: float) -> int:
        """An offset between the first and the last."""
        log = self.both.log
        return log.start_offset + round(share * (log.end_offset - log.start_offset))

    @rule(
        records=st.integers(1, 5),
        value_bytes=st.sampled_from((0, 20, 300, 2000)),
        producer_id=st.sampled_from((-1, *PRODUCER_IDS)),
        transactional=st.booleans(),
        bump_epoch=st.booleans(),
        age_ms=st.sampled_from((0, 5_000, 50_000)),
    )
    def append(self, **shape: Any) -> None:
        self.both.now_ms += 100
        self.both.append(**shape)

    @rule(shapes=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=3))
    def append_as_is(self, shapes: list[tuple[int, int]]) -> None:
        self.both.append_as_is(shapes)

    @rule(producer_id=producer_ids, kind=st.sampled_from(MarkerType))
    def end_transaction(self, producer_id: int, kind: MarkerType) -> None:
        self.both.end_transaction(producer_id, kind)

    @rule(producer_id=producer_ids, back=st.integers(0, 4))
    def repeat(self, producer_id: int, back: int) -> None:
        self.both.repeat(producer_id, back)

    @rule(producer_id=producer_ids)
    def send_wrong(self, producer_id: int) -> None:
        self.both.send_wrong(producer_id)

    @rule()
    def begin_leader_epoch(self) -> None:
        self.both.begin_leader_epoch()

    @rule(share=shares)
    def truncate(self, share: float) -> None:
        self.both.truncate(self.offset(share))

    @rule(share=shares)
    def delete_before(self, share: float) -> None:
        self.both.delete_before(self.offset(share))

    @rule(bytes_max=st.sampled_from((0, 500, 3000)))
    def retain_bytes(self, bytes_max: int) -> None:
        self.both.retain(bytes_max=bytes_max)

    @rule(age_ms=st.sampled_from((0, 10_000)))
    def retain_age(self, age_ms: int) -> None:
        self.both.retain(age_ms=age_ms)

    @rule(share=shares, bytes_max=st.sampled_from((1, 300, 1 << 20)), end_share=st.none() | shares)
    def read(self, share: float, bytes_max: int, end_share: float | None) -> None:
        self.both.check_read(self.offset(share), bytes_max, None if end_share is None else self.offset(end_share))

    @rule(age_ms=st.integers(-1000, 60_000))
    def find_time(self, age_ms: int) -> None:
        self.both.check_time(self.both.now_ms - age_ms)

    @invariant()
    def ends_where_the_list_does(self) -> None:
        assert self.both.log.start_offset <= self.both.log.end_offset
        assert self.both.log.durable_offset <= self.both.log.end_offset

    def teardown(self) -> None:
        self.both.check()


class AnyDiskLog(AnyLog):
    """What a log on disk offers besides."""

    @rule()
    def roll(self) -> None:
        self.both.roll()

    @rule()
    def sync(self) -> None:
        self.both.sync()

    @rule()
    def begin_sync(self) -> None:
        self.both.begin_sync()

    @rule()
    def begin_checkpoint(self) -> None:
        self.both.begin_checkpoint()

    @precondition(lambda self: self.both.pending)
    @rule(which=st.integers(0, 9))
    def advance(self, which: int) -> None:
        self.both.advance(which)

    @rule()
    def close_and_reopen(self) -> None:
        self.both.close_and_reopen()

    @rule()
    def kill_and_reopen(self) -> None:
        self.both.kill_and_reopen()

    @invariant()
    def no_segment_outlives_the_start(self) -> None:
        assert isinstance(self.both.log, Log)
        assert all(segment.next_offset > self.both.log.start_offset for segment in self.both.log.segments[:-1])


class LogOnSimulatedDisk(AnyDiskLog):
    def begin(self) -> LogBesideList:
        return open_beside_list(SimulatedDisk(), Path("/data/0"))


class LogOnSystemDisk(AnyDiskLog):
    def begin(self) -> LogBesideList:
        self.directory = Path(tempfile.mkdtemp(prefix="flymq-log-"))
        return open_beside_list(SystemDisk(), self.directory / "topic" / "0")

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


class LogInMemory(AnyLog):
    """Its bound is so small that batches go all the time."""

    def begin(self) -> LogBesideList:
        return LogBesideList(MemoryLog("orders-0", CONFIG.with_changes({"memory.bytes": 1500})))

    @invariant()
    def is_within_its_bound(self) -> None:
        log, held = self.both.log, self.both.held()
        assert log.size == sum(len(batch.data) for batch in held)
        assert log.size <= log.config.memory_bytes or len(held) == 1


TestLogOnSimulatedDisk = LogOnSimulatedDisk.TestCase
TestLogOnSimulatedDisk.settings = SETTINGS
TestLogOnSystemDisk = LogOnSystemDisk.TestCase
TestLogOnSystemDisk.settings = settings(SETTINGS, max_examples=SETTINGS.max_examples // 4)
TestLogInMemory = LogInMemory.TestCase
TestLogInMemory.settings = SETTINGS
