"""Write docs/formats/kafka-protocol.md from the tables the broker itself uses, so that the page cannot lag behind.

    python tools/kafka_protocol_page.py            write the page
    python tools/kafka_protocol_page.py --check    exit 1 if the page is not up to date

Run it from the root of the repository.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from flymq.gateways.kafka.errors import CODES
from flymq.gateways.kafka.handlers import HANDLERS
from flymq.gateways.kafka.settings import WITHOUT_EFFECT
from flymq.wire.kafka.apis import CODECS, Api
from flymq.wire.kafka.codec import messages_of

PAGE = Path("docs/formats/kafka-protocol.md")

_INTRODUCTION = """\
# What is served of Kafka's protocol

<!-- Written by `python tools/kafka_protocol_page.py`; change the tables in src/flymq/wire/kafka and gateways/kafka. -->

Kafka's clients connect to the same port as all others and work on the same topics, groups and transactions. A broker
tells exactly these versions in its answer to ApiVersions, and each is served whole. How to set a client up is in
[Use Kafka's clients](../how-to/kafka-clients.md).

## Requests

"Compact" is the first version written in the form with tagged fields, which Kafka calls flexible. Tagged fields that
are not known are skipped.
"""

_BEHAVIOUR = """\
## What to expect

- Responses come in the order of the requests of a connection. Requests behind one that waits are served meanwhile.
- A version of ApiVersions that is not known is answered in the form of version 0, with the error UNSUPPORTED_VERSION
  and the versions that are. Produce of the versions 0 to 2 is told, since older clients compress only where it is;
  whoever uses it gets UNSUPPORTED_VERSION. Any other request that is not served, or cannot be read, ends the
  connection.
- Produce without acks has no response. If it fails, the connection ends.
- A fetch session lives as long as its connection. A client that comes back with an older one is told
  FETCH_SESSION_ID_NOT_FOUND and opens another.
- Topics are created by Metadata, where the client and `topics.auto_create` allow it, never by Produce.
- A topic that is deleted and made again has another id.
- `acks=all` is answered once the records are on the disk, not only in the memory of the machine.
- A transaction begins with the first partition or group that is added to it. The broker aborts one that is open for
  longer than its timeout, and after a crash all that were open. Their producers get INVALID_PRODUCER_ID_MAPPING, or
  INVALID_PRODUCER_EPOCH for Produce; clients that know of KIP-360 then abort, take a new epoch and go on.
- Groups with `group.protocol=consumer` (KIP-848): the broker shares out by `uniform` or `range`; racks are kept and not
  used. The session timeout and the interval of heartbeats are the broker's (`groups.consumer_session_timeout_ms`,
  `groups.consumer_heartbeat_ms`). A pattern of topics must match the whole name, in the language of RE2 without
  Unicode classes; it never means the broker's own topics.
- A group changes between the two protocols only while it has no members; its offsets stay. Members of the other one
  are refused until then: JoinGroup with INCONSISTENT_GROUP_PROTOCOL, ConsumerGroupHeartbeat with GROUP_ID_NOT_FOUND.
- The address that Metadata tells is the one the client dialled, unless `listener.advertised_host` says otherwise.

## What is left out

| | Why |
|---|---|
| Produce 12 and 13, AddPartitionsToTxn 4, EndTxn 5, TxnOffsetCommit 5 | transactions that begin by themselves |
| SASL mechanisms other than PLAIN | |
| ACLs, quotas, delegation tokens, reassignments, share groups, telemetry | |
| What brokers say to each other | |
"""


def render() -> str:
    return "\n".join(
        [
            _INTRODUCTION,
            *_requests(),
            "",
            _BEHAVIOUR,
            *_settings(),
            "",
            "## Errors\n",
            "Each failure has one name in all of FlyMQ's protocols, and this one in Kafka's. Those that are not listed",
            "are UNKNOWN_SERVER_ERROR.\n",
            *_errors(),
            "",
        ]
    )


def _requests() -> Iterator[str]:
    yield "| Request | Key | Versions | Compact |"
    yield "|---|---|---|---|"
    for api in map(Api, sorted(HANDLERS)):
        first, last = CODECS[api]
        compact = messages_of(api).COMPACT_FROM
        name = "".join(word.title() for word in api.name.split("_"))
        versions = f"{first}" if first == last else f"{first}–{last}"
        yield f"| {name} | {api.value} | {versions} | {'never' if compact > last else f'{max(first, compact)}'} |"


def _settings() -> Iterator[str]:
    yield "## Settings of topics\n"
    yield "They have Kafka's names. `message.timestamp.type` takes `CreateTime` and `LogAppendTime`, and"
    yield "`min.cleanable.dirty.ratio` is `min.cleanable.ratio.percent` here. These are taken and have no effect:\n"
    yield from (f"- `{name}`" for name in sorted(WITHOUT_EFFECT))


def _errors() -> Iterator[str]:
    yield "| FlyMQ | Kafka | |"
    yield "|---|---|---|"
    for error, code in sorted(CODES.items(), key=lambda item: item[0].code):
        yield f"| {error.code} | {code.name} | {code.value} |"


def main(arguments: list[str]) -> int:
    if "--check" not in arguments:
        PAGE.write_text(render())
        return 0
    if PAGE.exists() and PAGE.read_text() == render():
        return 0
    print(f"{PAGE} is not up to date. Try: python tools/kafka_protocol_page.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
