"""Compatibility with the options of Spark's Kafka connector.

The connector's own options, such as `startingOffsets`, have the same names here. Those that it passes to the Kafka
client begin with `kafka.` and are translated here, so that a program only has to change the format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from flymq.model.errors import InvalidOption

PREFIX = "kafka."

RENAMED = {
    "bootstrap.servers": "bootstrapServers",
    "client.id": "clientId",
    "group.id": "groupId",
    "isolation.level": "isolation",
    "request.timeout.ms": "requestTimeoutMs",
    "socket.connection.setup.timeout.ms": "connectTimeoutMs",
    "max.partition.fetch.bytes": "fetchBytes",
    "acks": "acks",
    "compression.type": "compression",
    "batch.size": "batchBytes",
    "transaction.timeout.ms": "transactionTimeoutMs",
    "ssl.truststore.location": "tlsCaFile",
    "ssl.keystore.location": "tlsCertFile",
}

REFUSED = {
    "auto.offset.reset": "use startingOffsets",
    "key.deserializer": "keys come as bytes; cast or decode the column",
    "value.deserializer": "values come as bytes; cast or decode the column",
    "key.serializer": "keys are strings or bytes; cast or encode the column",
    "value.serializer": "values are strings or bytes; cast or encode the column",
    "enable.auto.commit": "Spark keeps the offsets in the checkpoint",
    "interceptor.classes": "interceptors are not supported",
}

WITHOUT_EFFECT = frozenset(
    [
        "kafka.sasl.mechanism",  # the broker uses a username and a password with every mechanism
        "kafka.ssl.truststore.type",
        "kafka.ssl.keystore.type",
        "kafka.enable.idempotence",  # always
        "kafka.linger.ms",  # rows are fetched in batches
        "kafka.retries",
        "kafka.max.poll.records",
        "kafka.session.timeout.ms",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
    ]
)
"""Accepted and ignored, so that programs for the Kafka connector run unchanged."""

_JAAS = re.compile(r"""(username|password)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


def without_kafka_names(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options by FlyMQ's names. If an option is set by both names, FlyMQ's takes precedence."""
    plain: dict[str, str] = {}
    translated: dict[str, str] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in WITHOUT_EFFECT:
            continue
        if lower.startswith(PREFIX):
            translated |= _translate(lower.removeprefix(PREFIX), value)
        else:
            plain[name] = value
    spelled = {name.replace("_", "").lower() for name in plain}
    return plain | {name: value for name, value in translated.items() if name.lower() not in spelled}


def _translate(name: str, value: str) -> dict[str, str]:
    if name in REFUSED:
        raise InvalidOption(f"the option kafka.{name} cannot be set: {REFUSED[name]}")
    if name in _TRANSLATED:
        return _TRANSLATED[name](value)
    if name not in RENAMED:
        raise InvalidOption(f"the option kafka.{name} is not supported")
    return {RENAMED[name]: value}


def _security_protocol(value: str) -> dict[str, str]:
    if value.upper() not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise InvalidOption(f"the option kafka.security.protocol does not take {value!r}")
    return {"tlsEnabled": str(value.upper().endswith("SSL")).lower()}


def _jaas(value: str) -> dict[str, str]:
    found = {name: double or single for name, double, single in _JAAS.findall(value)}
    if found.keys() != {"username", "password"}:
        raise InvalidOption(
            "the option kafka.sasl.jaas.config has no username and password",
            hint="Set the options username and password instead.",
        )
    return found


_TRANSLATED: dict[str, Callable[[str], dict[str, str]]] = {
    "security.protocol": _security_protocol,
    "sasl.jaas.config": _jaas,
}
