"""Metrics that clients push (KIP-714): what each is asked for, and the last numbers it has pushed.

The number of clients is bounded, and so are the series of each, and the text of all of them. What a client that no
longer pushes has pushed is dropped after three of its intervals.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from flymq.broker.service.caller import Caller
from flymq.broker.service.gate import CLUSTER_NAME, Gate, Operation, Resource
from flymq.cluster.catalog import Catalog, Scope
from flymq.cluster.image import Image
from flymq.coordination.client_metrics import DEFAULTS as DEFAULTS
from flymq.coordination.client_metrics import MetricsSubscription, Wanted, check_names, parse_subscription, select
from flymq.host.clock import Clock
from flymq.host.entropy import Entropy, new_id
from flymq.model.errors import (
    FlyMQError,
    InvalidRequest,
    InvalidSetting,
    MetricsTooLarge,
    MetricsTooOften,
    UnknownMetricsSubscription,
)
from flymq.model.exposition import labels
from flymq.record.compression import decompress
from flymq.wire.otlp import Metrics, Point, parse_metrics

PUSHED_BYTES_MAX = 1 << 20
"""Of one push, as it is sent."""
DECOMPRESSED_BYTES_MAX = 8 << 20
CLIENTS_MAX = 1_000
SERIES_MAX = 500
"""Of one client."""
SERIES_BYTES_MAX = 32 << 20
"""Of the names and labels of all series."""
_INTERVALS_KEPT = 3
_TOLERANCE = 0.9
"""Clocks of clients and brokers do not run alike."""
_PREFIX = "kafka_client_"
_SHOWN_OF_RESOURCE = ("group_id", "group_instance_id", "transactional_id", "client_rack")
_NO_LETTER = re.compile(r"[^a-zA-Z0-9_]")
_NAMESPACE = "org.apache.kafka."
_NAME_LENGTH_MAX = 249
_SUBSCRIPTIONS_MAX = 100


@dataclass(frozen=True, slots=True)
class MetricsClient:
    """A client as it describes itself."""

    instance_id: UUID
    client_id: str = ""
    software: str = ""
    software_version: str = ""
    address: str = ""
    port: int = 0

    def fields(self) -> dict[str, str]:
        """The fields that a subscription can match."""
        return {
            "client_instance_id": str(self.instance_id),
            "client_id": self.client_id,
            "client_software_name": self.software,
            "client_software_version": self.software_version,
            "client_source_address": self.address,
            "client_source_port": str(self.port),
        }


@dataclass(slots=True)
class _Known:
    """What is kept of one client."""

    wanted: Wanted
    got_s: float = float("-inf")
    pushed_s: float = float("-inf")
    has_pushed: bool = False
    """Since it got its subscription: the first push is never too early."""
    may_ask_again: bool = False
    """It was told that its subscription has changed."""
    has_ended: bool = False
    series: dict[tuple[str, bool], dict[str, float]] = field(default_factory=dict)
    """By name and whether it is a counter: value by labels."""
    series_bytes: int = 0

    @property
    def interval_s(self) -> float:
        return self.wanted.interval_ms / 1000


class ClientMetrics:
    """Subscriptions, and what clients have pushed."""

    def __init__(self, image: Image, catalog: Catalog, gate: Gate, clock: Clock, entropy: Entropy) -> None:
        self._image = image
        self._catalog = catalog
        self._gate = gate
        self._clock = clock
        self._entropy = entropy
        self._clients: OrderedDict[UUID, _Known] = OrderedDict()  # the least recently heard first
        self._parsed: dict[str, tuple[Mapping[str, str], MetricsSubscription]] = {}
        self.pushes: Counter[str] = Counter({"accepted": 0, "refused": 0})
        self._series_bytes = 0
        self.left_out = 0
        """Numbers beyond the limits."""

    # --- subscriptions

    def names(self, caller: Caller) -> list[str]:
        """Return the names of the subscriptions."""
        self._gate.check(caller, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)
        return self._image.names_with_settings(Scope.CLIENT_METRICS)

    def settings_of(self, caller: Caller, name: str) -> Mapping[str, str]:
        """Return the settings that were given for a subscription."""
        self._gate.check(caller, Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)
        return self._given(name)

    def _given(self, name: str) -> dict[str, str]:
        return {key: str(value) for key, value in self._image.settings_of(Scope.CLIENT_METRICS, name).items()}

    async def alter(
        self, caller: Caller, name: str, changes: Mapping[str, str | None], *, validate_only: bool = False
    ) -> None:
        """Change settings of a subscription; None resets one. A subscription without settings is gone."""
        self._gate.check(caller, Operation.ALTER_CONFIGS, Resource.CLUSTER, CLUSTER_NAME)
        if not 1 <= len(name) <= _NAME_LENGTH_MAX:
            raise InvalidRequest(f"the name of a subscription has 1 to {_NAME_LENGTH_MAX} characters, not {len(name)}")
        old = self._image.settings_of(Scope.CLIENT_METRICS, name)
        new = {key: str(value) for key, value in {**old, **changes}.items() if value is not None}
        check_names(changes)
        parse_subscription(new)
        if not old and len(self._image.names_with_settings(Scope.CLIENT_METRICS)) >= _SUBSCRIPTIONS_MAX:
            raise InvalidRequest(f"there can be {_SUBSCRIPTIONS_MAX} subscriptions to client metrics")
        if not validate_only and new != old:
            put = self._catalog.put_settings(Scope.CLIENT_METRICS, name, old, dict(new))
            await self._image.until(await put)

    # --- requests of clients

    def get(self, caller: Caller, client: MetricsClient) -> tuple[UUID, Wanted]:
        """Return the id of a client, a new one if it has none, and what it is asked for."""
        now_s = self._clock.monotonic_s()
        if not client.instance_id.int:
            client = MetricsClient(
                new_id(self._entropy),
                client.client_id,
                client.software,
                client.software_version,
                client.address,
                client.port,
            )
        wanted = self._select(client)
        known = self._hear(client.instance_id, wanted)
        since_s = now_s - max(known.got_s, known.pushed_s)
        if since_s < known.interval_s * _TOLERANCE and wanted == known.wanted and not known.may_ask_again:
            raise MetricsTooOften(f"the interval is {known.wanted.interval_ms} ms")
        known.wanted, known.got_s = wanted, now_s
        known.may_ask_again = known.has_pushed = False
        return client.instance_id, wanted

    def check_push(
        self, caller: Caller, client: MetricsClient, subscription_id: int, size: int, *, is_last: bool
    ) -> None:
        """Raise an error unless the client may push this now."""
        try:
            self._check_push(client, subscription_id, size, is_last=is_last)
        except FlyMQError:
            self.pushes["refused"] += 1
            raise

    def _check_push(self, client: MetricsClient, subscription_id: int, size: int, *, is_last: bool) -> None:
        if not client.instance_id.int:
            raise InvalidRequest("metrics are pushed with the id of the client", hint="Get a subscription first.")
        wanted = self._select(client)
        known = self._hear(client.instance_id, wanted)
        if known.has_ended:
            raise InvalidRequest("the client has pushed its last metrics already")
        now_s = self._clock.monotonic_s()
        if known.has_pushed and not is_last and now_s - known.pushed_s < known.interval_s * _TOLERANCE:
            raise MetricsTooOften(f"the interval is {known.wanted.interval_ms} ms")
        known.pushed_s, known.has_pushed = now_s, True
        if subscription_id != wanted.id:
            known.may_ask_again = True
            raise UnknownMetricsSubscription(f"the subscription is {wanted.id}, not {subscription_id}")
        if size > PUSHED_BYTES_MAX:
            raise MetricsTooLarge(f"{size} bytes of metrics; the limit is {PUSHED_BYTES_MAX}")
        known.has_ended = is_last

    def read(self, data: bytes, compression: int) -> Metrics:
        """Decode what was pushed. Long work, for a thread."""
        plain = decompress(data, compression, DECOMPRESSED_BYTES_MAX)
        return parse_metrics(memoryview(plain), points_max=SERIES_MAX)

    def pushed(self, caller: Caller, client: MetricsClient, metrics: Metrics) -> None:
        """Keep what a client has pushed, in place of what it had pushed before."""
        known = self._clients.get(client.instance_id)
        if known is None:
            return  # dropped meanwhile
        who = labels(client_id=client.client_id[:256], client_instance_id=str(client.instance_id))
        self._drop_series(known)
        self.left_out += metrics.left_out
        for point in metrics.points:
            if not known.wanted.wants(point.name):
                continue
            name, at = _metric_name(point), f"{who}{_labels(point)}"
            size = len(name) + len(at)
            if self._series_bytes + size > SERIES_BYTES_MAX:
                self.left_out += 1
                continue
            known.series.setdefault((name, point.is_counter), {})[at] = point.value
            known.series_bytes += size
            self._series_bytes += size
        self.pushes["accepted"] += 1

    def failed(self) -> None:
        """Count a push that could not be decoded."""
        self.pushes["refused"] += 1

    # --- metrics of the broker

    @property
    def clients(self) -> int:
        """How many clients have pushed metrics lately."""
        self._expire()
        return sum(bool(known.series) for known in self._clients.values())

    def series(self) -> Iterator[tuple[str, bool, dict[str, float]]]:
        """Yield each metric: its name, whether it is a counter, and its values by labels."""
        self._expire()
        merged: dict[tuple[str, bool], dict[str, float]] = {}
        for known in self._clients.values():
            for key, values in known.series.items():
                merged.setdefault(key, {}).update(values)
        for (name, is_counter), values in sorted(merged.items(), key=lambda item: item[0]):
            yield name, is_counter, values

    # --- internal

    def _select(self, client: MetricsClient) -> Wanted:
        return select(self._subscriptions(), client.fields())

    def _subscriptions(self) -> list[MetricsSubscription]:
        settings = {name: self._given(name) for name in self._image.names_with_settings(Scope.CLIENT_METRICS)}
        for name, given in settings.items():
            if name not in self._parsed or self._parsed[name][0] != given:
                try:
                    self._parsed[name] = dict(given), parse_subscription(given)
                except InvalidSetting:  # of a later version, say
                    self._parsed[name] = dict(given), MetricsSubscription((), 0)
        for name in self._parsed.keys() - settings.keys():
            del self._parsed[name]
        return [subscription for _, subscription in self._parsed.values()]

    def _hear(self, instance_id: UUID, wanted: Wanted) -> _Known:
        known = self._clients.get(instance_id)
        if known is None:
            self._expire()
            if len(self._clients) >= CLIENTS_MAX:
                self._drop(next(iter(self._clients)))
            known = self._clients[instance_id] = _Known(wanted)
        self._clients.move_to_end(instance_id)
        return known

    def _expire(self) -> None:
        now_s = self._clock.monotonic_s()
        for instance_id, known in list(self._clients.items()):
            if now_s - max(known.got_s, known.pushed_s) > _INTERVALS_KEPT * known.interval_s:
                self._drop(instance_id)

    def _drop(self, instance_id: UUID) -> None:
        self._drop_series(self._clients.pop(instance_id))

    def _drop_series(self, known: _Known) -> None:
        self._series_bytes -= known.series_bytes
        known.series, known.series_bytes = {}, 0


def _metric_name(point: Point) -> str:
    """Return the name for Prometheus: org.apache.kafka.consumer.poll.idle.ratio → kafka_client_consumer_poll_…"""
    name = _PREFIX + _NO_LETTER.sub("_", point.name.removeprefix(_NAMESPACE))
    while name.endswith("_total"):  # for counters only: a name has one type
        name = name.removesuffix("_total")
    return f"{name}_total" if point.is_counter else name


def _labels(point: Point) -> str:
    shown = {name: point.resource[name] for name in _SHOWN_OF_RESOURCE if point.resource.get(name)}
    shown |= {_NO_LETTER.sub("_", name): value for name, value in sorted(point.attributes.items())}
    for taken in ("client_id", "client_instance_id"):
        shown.pop(taken, None)
    # Prometheus refuses a whole page for one label that begins with a digit, or is its own, as `__name__` is.
    valid = {name: value for name, value in shown.items() if not name[:1].isdigit() and not name.startswith("__")}
    return "".join(f",{labels(**{name: value})}" for name, value in valid.items())
