"""Settings of topics, translated from Kafka's words and back."""

import pytest

from flymq.gateways.kafka.broker_settings import BROKER_NAMES, READ_ONLY, to_topic_settings
from flymq.gateways.kafka.settings import to_flymq, type_of
from flymq.model.errors import InvalidRequest, InvalidSetting
from flymq.model.kept_settings import KEPT_BY_TOPICS
from flymq.model.topic_config import TopicConfig
from flymq.model.typed_settings import SettingType


def test_values_that_are_spelled_otherwise_are_translated() -> None:
    assert to_flymq({"retention.ms": " 1000 ", "message.timestamp.type": "LogAppendTime"}) == {
        "retention.ms": "1000",
        "message.timestamp.type": "append",
    }


def test_what_brings_a_default_back_stays_so() -> None:
    settings = to_flymq({"retention.ms": None, "min.cleanable.dirty.ratio": None, "message.timestamp.type": None})
    assert set(settings.values()) == {None}


def test_unknown_settings_are_refused_by_name() -> None:
    with pytest.raises(InvalidSetting, match=r"no\.such"):
        TopicConfig().with_changes(to_flymq({"no.such": "1"}))


def test_a_setting_acts_or_is_kept_but_not_both() -> None:
    assert not KEPT_BY_TOPICS.keys() & TopicConfig().to_mapping().keys()


def test_settings_have_the_types_of_kafka() -> None:
    assert type_of("cleanup.policy") is SettingType.LIST
    assert type_of("min.cleanable.dirty.ratio") is SettingType.DOUBLE
    assert type_of("retention.ms") is SettingType.LONG
    assert type_of("segment.bytes") is SettingType.INT
    assert type_of("preallocate") is SettingType.BOOLEAN
    assert type_of("compression.type") is SettingType.STRING


def test_broker_settings_are_defaults_of_topics() -> None:
    assert to_topic_settings({"log.retention.ms": "5", "log.message.timestamp.type": "CreateTime"}) == {
        "retention.ms": "5",
        "message.timestamp.type": "create",
    }
    assert BROKER_NAMES.keys() <= TopicConfig().to_mapping().keys()


def test_a_broker_setting_that_cannot_change_is_told_from_an_unknown_one() -> None:
    with pytest.raises(InvalidRequest, match=r"num\.partitions"):
        to_topic_settings({"num.partitions": "5"})
    with pytest.raises(InvalidSetting, match=r"no\.such"):
        to_topic_settings({"no.such": "5"})
    assert not READ_ONLY & set(BROKER_NAMES.values())
