"""Options of Spark's Kafka connector, by the names under which programs for it have them.

Options that are the connector's own, such as `startingOffsets`, have the same name here. What it hands on to Kafka's
client begins with `kafka.`; that is translated here, so that such a program needs another format and nothing else.
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
    "auto.offset.reset": "startingOffsets says where a query begins",
    "key.deserializer": "keys come as bytes; cast or decode the column",
    "value.deserializer": "values come as bytes; cast or decode the column",
    "key.serializer": "keys are strings or bytes; cast or encode the column",
    "value.serializer": "values are strings or bytes; cast or encode the column",
    "enable.auto.commit": "Spark keeps the offsets in the checkpoint",
    "interceptor.classes": "there are no interceptors",
}

WITHOUT_EFFECT = frozenset(
    [
        "kafka.sasl.mechanism",  # the broker takes a user and a password, whatever the way is called
        "kafka.ssl.truststore.type",
        "kafka.ssl.keystore.type",
        "kafka.enable.idempotence",  # always
        "kafka.linger.ms",  # rows come in batches
        "kafka.retries",
        "kafka.max.poll.records",
        "kafka.session.timeout.ms",
        "kafkaconsumer.polltimeoutms",
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
    ]
)
"""Taken, so that programs for the Kafka connector run unchanged, and without effect."""

_JAAS = re.compile(r"""(username|password)\s*=\s*(?:"([^"]*)"|'([^']*)')""")


def without_kafka_names(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options under their plain names. A plain name given beside Kafka's wins."""
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
        raise InvalidOption(f"the option kafka.{name} is not known here")
    return {RENAMED[name]: value}


def _security_protocol(value: str) -> dict[str, str]:
    if value.upper() not in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"):
        raise InvalidOption(f"the option kafka.security.protocol does not take {value!r}")
    return {"tlsEnabled": str(value.upper().endswith("SSL")).lower()}


def _jaas(value: str) -> dict[str, str]:
    found = {name: double or single for name, double, single in _JAAS.findall(value)}
    if found.keys() != {"username", "password"}:
        raise InvalidOption(
            "the option kafka.sasl.jaas.config names no username and password",
            hint="Set the options username and password instead.",
        )
    return found


_TRANSLATED: dict[str, Callable[[str], dict[str, str]]] = {
    "security.protocol": _security_protocol,
    "sasl.jaas.config": _jaas,
}
