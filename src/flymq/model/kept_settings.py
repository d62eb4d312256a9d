"""Topic settings of Kafka that have no effect here: checked, kept and shown, so that programs that set them work.

They are about how Kafka's brokers keep files and copy between tiers and replicas, not about what a topic promises.
"""

from __future__ import annotations

from flymq.model.typed_settings import SettingType, TypedSetting, by_name

_NEVER = str((1 << 63) - 1)
_REPLICA = "([0-9]+:[0-9]+)?"

KEPT_BY_TOPICS = by_name(
    (
        TypedSetting(
            "file.delete.delay.ms",
            SettingType.LONG,
            "60000",
            "Kafka: delay before a file is removed. Here files are removed once no reader has them open.",
        ),
        TypedSetting(
            "flush.messages",
            SettingType.LONG,
            _NEVER,
            "Kafka: number of records between two fsyncs. Here `persistence` decides.",
            low=1,
        ),
        TypedSetting(
            "flush.ms", SettingType.LONG, _NEVER, "Kafka: time between two fsyncs. Here `persistence` decides."
        ),
        TypedSetting(
            "follower.replication.throttled.replicas",
            SettingType.LIST,
            "",
            "Kafka: replicas whose replication is throttled on the followers' side.",
            item=_REPLICA,
        ),
        TypedSetting(
            "leader.replication.throttled.replicas",
            SettingType.LIST,
            "",
            "Kafka: replicas whose replication is throttled on the leaders' side.",
            item=_REPLICA,
        ),
        TypedSetting(
            "local.retention.bytes",
            SettingType.LONG,
            "-2",
            "Kafka: retention by size of the local part of a tiered topic.",
            low=-2,
        ),
        TypedSetting(
            "local.retention.ms",
            SettingType.LONG,
            "-2",
            "Kafka: retention by time of the local part of a tiered topic.",
            low=-2,
        ),
        TypedSetting(
            "preallocate", SettingType.BOOLEAN, "false", "Kafka: allocate a segment file at its full size at once."
        ),
        TypedSetting(
            "remote.log.copy.disable", SettingType.BOOLEAN, "false", "Kafka: stop copying to the remote tier."
        ),
        TypedSetting(
            "remote.log.delete.on.disable",
            SettingType.BOOLEAN,
            "false",
            "Kafka: delete the remote part of a topic that is no longer tiered.",
        ),
        TypedSetting(
            "remote.storage.enable",
            SettingType.BOOLEAN,
            "false",
            "Kafka: tiered storage. Here all segments are local.",
        ),
        TypedSetting(
            "segment.index.bytes",
            SettingType.INT,
            "10485760",
            "Kafka: size of an index file. Here indexes grow as needed.",
            low=4,
        ),
        TypedSetting(
            "segment.jitter.ms",
            SettingType.LONG,
            "0",
            "Kafka: random part of `segment.ms`, so that not all topics roll at once.",
        ),
    )
)
