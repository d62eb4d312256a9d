"""The cluster metadata as known to this broker: all topics, their partitions, leaders and leader epochs.

An image is built from the metadata store only: `load` reads everything at one revision, `follow` applies every later
revision in order. Nothing else writes to it. Code that changes the store (broker/admin.py) waits with `until` for the
revision of its change; opening, closing and leading partitions (broker/replicas) are reactions to changes of the image.

A revision may change thousands of topics. It is prepared in time slices, shown in one step, and told to the watchers in
time slices again: no other revision is shown meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

from flymq.cluster.catalog import (
    PARTITION_PREFIX,
    SETTINGS_PREFIX,
    TOPIC_PREFIX,
    Overrides,
    PartitionState,
    Scope,
    TopicSpec,
    parse_partition,
    parse_partition_key,
    parse_settings,
    parse_topic,
    settings_key,
)
from flymq.cluster.members import Members
from flymq.host.time_slices import TimeSlice
from flymq.metadata.store import Event, EventBatch, MetadataStore
from flymq.model.errors import (
    FlyMQError,
    IndeterminateResult,
    InvalidSetting,
    MetadataUnavailable,
    PartitionNotFound,
    RevisionCompacted,
    TopicIdNotFound,
    TopicNotFound,
)
from flymq.model.kept_settings import KEPT_BY_TOPICS
from flymq.model.names import TopicPartition, is_internal
from flymq.model.topic_config import BROKER_DEFAULT, INT64_MAX, TopicConfig

logger = logging.getLogger(__name__)

ALL_KEYS = ""
_PATIENCE_S = 1.0
_CONFIGS_MAX = 1_000

_INTERNAL: Overrides = {
    "compression.type": "producer",
    "message.timestamp.before.max.ms": INT64_MAX,
    "message.timestamp.after.max.ms": INT64_MAX,
}
"""What the broker writes itself is neither refused nor compressed, whatever the defaults of topics are."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic at one revision. Immutable: a change makes a new one."""

    name: str
    spec: TopicSpec
    config: TopicConfig
    partitions: tuple[PartitionState, ...]
    """By partition number."""

    @property
    def topic_id(self) -> UUID:
        return self.spec.topic_id

    @property
    def replication_factor(self) -> int:
        """Of its first partition: reassignments change it, and may differ from partition to partition."""
        return len(self.partitions[0].target)

    @property
    def is_internal(self) -> bool:
        return is_internal(self.name)

    @property
    def own_settings(self) -> Mapping[str, str | int | float]:
        """The settings that were given for this topic, rather than for all."""
        return {name: value for name, value in self.spec.settings.items() if value != BROKER_DEFAULT}

    @property
    def settings(self) -> Mapping[str, str | int | float]:
        """All settings that act, and those without effect that were given for this topic."""
        kept = {name: value for name, value in self.spec.settings.items() if name in KEPT_BY_TOPICS}
        return {**self.config.to_mapping(), **kept}

    def state(self, partition: int) -> PartitionState:
        if not 0 <= partition < len(self.partitions):
            raise PartitionNotFound(
                f"the topic {self.name!r} has the partitions 0 to {len(self.partitions) - 1}, not {partition}"
            )
        return self.partitions[partition]


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic before and after a revision; None: it did not exist, or was deleted."""

    name: str
    before: Topic | None
    after: Topic | None


class Image:
    """All topics of the cluster at one revision."""

    def __init__(self, store: MetadataStore, defaults: TopicConfig, *, broker_id: int = 0) -> None:
        """`defaults` are those in the broker's configuration; settings changed at run time come on top of them."""
        self._store = store
        self._file_defaults = self.defaults = defaults
        self._broker_id = broker_id
        self._settings: dict[str, Overrides] = {}
        self._configs: dict[tuple[tuple[str, str | int | float], ...], TopicConfig] = {}
        self._specs: dict[str, TopicSpec] = {}
        self._states: dict[UUID, dict[int, PartitionState]] = {}
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._names: list[str] | None = []  # sorted; None: to be sorted again
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._has_ended = False
        self._updating = asyncio.Lock()  # large changes take several turns of the loop: one after the other
        self.revision = 0
        self.members = Members()
        """The brokers. Empty for a broker without a cluster."""
        self.watchers: list[Callable[[TopicChange], None]] = []
        """Called for every changed topic, in the order of the revisions."""
        self.member_watchers: list[Callable[[], None]] = []
        """Called when brokers or the controller have changed, before the watchers of topics."""

    # --- find

    def __iter__(self) -> Iterator[Topic]:
        """Topics, sorted by name."""
        if self._names is None:
            self._names = sorted(self._topics)
        return iter([self._topics[name] for name in self._names])

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __len__(self) -> int:
        return len(self._topics)

    def find(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def get(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise TopicNotFound(f"there is no topic {name!r}")
        return topic

    def get_by_id(self, topic_id: bytes) -> Topic:
        """Return the topic with this id, as 16 bytes. A topic that is deleted and created again has a new id."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise TopicIdNotFound(f"there is no topic with the id {topic_id.hex()}")
        return topic

    def find_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def state(self, name: TopicPartition) -> PartitionState:
        return self.get(name.topic).state(name.partition)

    def partition_counts(self) -> dict[str, int]:
        return {name: len(topic.partitions) for name, topic in self._topics.items()}

    def settings_of(self, scope: Scope, name: str) -> Overrides:
        """Return the settings of a broker or a group that were changed at run time."""
        return self._settings.get(settings_key(scope, name), {})

    def names_with_settings(self, scope: Scope) -> list[str]:
        prefix = settings_key(scope, "")
        return sorted(key.removeprefix(prefix) for key in self._settings if key.startswith(prefix))

    # --- follow the store

    async def load(self) -> None:
        """Read everything at one revision."""
        snapshot = await self._store.range(ALL_KEYS)
        async with self._updating:
            if 0 < snapshot.revision <= self.revision:
                return  # changes have arrived meanwhile
            self._specs, self._states, self._settings = {}, {}, {}
            members = []
            slice_ = TimeSlice()
            for found in snapshot.key_values:
                await slice_.yield_if_over()
                if self.members.is_key(found.key):
                    members.append(Event(found.key, found))
                elif found.key.startswith(TOPIC_PREFIX):
                    self._specs[found.key.removeprefix(TOPIC_PREFIX)] = parse_topic(found.value)
                elif found.key.startswith(PARTITION_PREFIX):
                    self._put_state(*parse_partition_key(found.key), parse_partition(found.value))
                elif found.key.startswith(SETTINGS_PREFIX):
                    self._settings[found.key] = parse_settings(found.value)
            self._find_defaults()
            changes = await self._changes(sorted(self._topics.keys() | self._specs.keys()))
            self.members.clear()
            await self._publish(snapshot.revision, changes, members, members_changed=True)

    async def follow(self) -> None:
        """Apply every change, in order, until the store is closed."""
        try:
            while True:
                try:
                    async for batch in self._store.watch(ALL_KEYS, from_revision=self.revision + 1):
                        async with self._updating:
                            if batch.revision > self.revision:  # else it was read meanwhile
                                await self._apply(batch)
                    return
                except RevisionCompacted:
                    await self._load_patiently()
        finally:
            self._has_ended = True
            for _, future in self._waiting:
                if not future.done():
                    future.set_exception(_nothing_arrives())

    async def _load_patiently(self) -> None:
        while True:
            try:
                await self.load()
                return
            except (MetadataUnavailable, IndeterminateResult) as error:
                logger.warning("the metadata cannot be read again now, retrying: %s", error.message)
                await asyncio.sleep(_PATIENCE_S)

    async def until(self, revision: int) -> None:
        """Return when the image has reached this revision."""
        if self.revision >= revision:
            return
        if self._has_ended:
            raise _nothing_arrives()
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, arrived))
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await arrived
        except TimeoutError:
            # A txn that changed nothing returns the revision of the store, which may be that of somebody else's key.
            await self.load()

    async def _apply(self, batch: EventBatch) -> None:
        changed: dict[str, None] = {}
        ids: set[UUID] = set()
        members = []
        slice_ = TimeSlice()
        for event in batch.events:
            await slice_.yield_if_over()
            key, found = event
            if self.members.is_key(key):
                members.append(event)
            elif key.startswith(TOPIC_PREFIX):
                name = key.removeprefix(TOPIC_PREFIX)
                if found is None:
                    self._specs.pop(name, None)
                else:
                    self._specs[name] = parse_topic(found.value)
                changed[name] = None
            elif key.startswith(PARTITION_PREFIX):
                topic_id, number = parse_partition_key(key)
                ids.add(topic_id)
                self._put_state(topic_id, number, None if found is None else parse_partition(found.value))
            elif key.startswith(SETTINGS_PREFIX):
                if found is None:
                    self._settings.pop(key, None)
                else:
                    self._settings[key] = parse_settings(found.value)
                if self._find_defaults():
                    changed |= dict.fromkeys(self._topics)
        for topic_id in ids:
            if (topic := self._by_id.get(topic_id.bytes)) is not None:
                changed[topic.name] = None
        changes = await self._changes(changed)
        await self._publish(batch.revision, changes, members, members_changed=bool(members))

    async def _changes(self, names: Iterable[str]) -> list[TopicChange]:
        """Return what has changed of these topics. Nothing of it is visible yet."""
        changes = []
        slice_ = TimeSlice()
        for name in names:
            await slice_.yield_if_over()
            before, after = self._topics.get(name), self._build(name)
            if before != after:
                _check_epochs(before, after)
                changes.append(TopicChange(name, before, after))
        return changes

    async def _publish(
        self, revision: int, changes: list[TopicChange], members: Iterable[Event], *, members_changed: bool
    ) -> None:
        """Show a revision, all of it in one step; then notify the watchers, which may have much to do."""
        for key, found in members:
            self.members.apply(key, found)
        for change in changes:
            self._replace(change)
        if members_changed:
            for member_watcher in self.member_watchers:
                member_watcher()
        slice_ = TimeSlice()
        for change in changes:
            for watcher in self.watchers:
                try:
                    watcher(change)
                except FlyMQError as error:  # the others, and all later changes, must not suffer from it
                    logger.error("a reaction to a change of the topic %s failed: %s", change.name, error)
            await slice_.yield_if_over()
        self._arrived(revision)

    def _replace(self, change: TopicChange) -> None:
        name, before, after = change.name, change.before, change.after
        if before is not None:
            del self._topics[name], self._by_id[before.topic_id.bytes]
        if after is not None:
            self._topics[name] = self._by_id[after.topic_id.bytes] = after
        if before is None or after is None:
            self._names = None

    def _put_state(self, topic_id: UUID, number: int, state: PartitionState | None) -> None:
        states = self._states.setdefault(topic_id, {})
        if state is not None:
            states[number] = state
            return
        states.pop(number, None)
        if not states:
            del self._states[topic_id]

    def _find_defaults(self) -> bool:
        """Take over the defaults of topics that were set at run time; return whether they have changed."""
        before = self.defaults
        of_all = self.settings_of(Scope.BROKER, "")
        of_this = self.settings_of(Scope.BROKER, str(self._broker_id))
        self.defaults = self._file_defaults.with_changes({**of_all, **of_this})
        self._configs.clear()
        return self.defaults != before

    def _build(self, name: str) -> Topic | None:
        spec = self._specs.get(name)
        if spec is None:
            return None
        states = self._states.get(spec.topic_id, {})
        if missing := [number for number in range(spec.partitions) if number not in states]:
            # Partitions are written before their topic, so somebody else has changed the store. Not a deletion: that
            # would remove the records.
            known = self._topics.get(name)
            is_known = known is not None and known.topic_id == spec.topic_id
            how = "is served as it was" if is_known else "is not served"
            logger.error("the topic %s %s: the metadata lacks its partitions %s", name, how, missing)
            return known if is_known else None
        partitions = tuple(states[number] for number in range(spec.partitions))
        return Topic(name, spec, self._config_of(name, spec), partitions)

    def _config_of(self, name: str, spec: TopicSpec) -> TopicConfig:
        """Return the settings of a topic. Topics with the same overrides share them: there may be thousands."""
        settings = {**_INTERNAL, **spec.settings} if is_internal(name) else spec.settings
        key = tuple(settings.items())
        found = self._configs.get(key)
        if found is None:
            if len(self._configs) >= _CONFIGS_MAX:
                self._configs.clear()
            found = self._configs[key] = self.defaults.for_topic(self._usable(settings))
        return found

    def _usable(self, overrides: Overrides) -> Overrides:
        """Leave out what this version does not know: another one may have written it, and the topic must be served."""
        usable: Overrides = {}
        for name, value in overrides.items():
            try:
                self.defaults.with_changes({name: value})
                usable[name] = value
            except InvalidSetting as error:
                logger.error("a setting of a topic is ignored: %s", error.message)
        return usable

    def _arrived(self, revision: int) -> None:
        assert revision >= self.revision, "revisions only grow"
        self.revision = revision
        still_waiting = []
        for wanted, future in self._waiting:
            if wanted > revision:
                still_waiting.append((wanted, future))
            elif not future.done():
                future.set_result(None)
        self._waiting = still_waiting


def _check_epochs(before: Topic | None, after: Topic | None) -> None:
    if before is None or after is None or before.topic_id != after.topic_id:
        return
    for old, new in zip(before.partitions, after.partitions, strict=False):
        assert new.leader_epoch >= old.leader_epoch, f"a leader epoch of {after.name} went back"


def _nothing_arrives() -> IndeterminateResult:
    return IndeterminateResult("this broker no longer follows the metadata store")
