"""Settings of topics, translated from Kafka's words and back."""

import pytest

from flymq.gateways.kafka.settings import WITHOUT_EFFECT, to_flymq
from flymq.model.errors import InvalidSetting
from flymq.model.topic_config import TopicConfig


def test_values_that_are_spelled_otherwise_are_translated() -> None:
    assert to_flymq(
        {
            "retention.ms": "1000",
            "message.timestamp.type": "LogAppendTime",
            "min.cleanable.dirty.ratio": "0.25",
            "cleanup.policy": "delete,compact",
        }
    ) == {
        "retention.ms": "1000",
        "message.timestamp.type": "append",
        "min.cleanable.ratio.percent": 25,
        "cleanup.policy": "compact,delete",
    }


def test_what_brings_a_default_back_stays_so() -> None:
    settings = to_flymq({"retention.ms": None, "min.cleanable.dirty.ratio": None, "message.timestamp.type": None})
    assert set(settings.values()) == {None}


def test_settings_without_effect_are_dropped_and_unknown_ones_are_left_to_be_refused() -> None:
    assert to_flymq(dict.fromkeys(WITHOUT_EFFECT, "1")) == {}
    with pytest.raises(InvalidSetting, match=r"no\.such"):
        TopicConfig().with_changes(to_flymq({"no.such": "1"}))


def test_no_setting_of_flymq_is_taken_for_one_without_effect() -> None:
    assert not WITHOUT_EFFECT & TopicConfig().to_mapping().keys()


def test_a_ratio_that_is_no_number_is_named() -> None:
    with pytest.raises(InvalidSetting, match=r"min\.cleanable\.dirty\.ratio"):
        to_flymq({"min.cleanable.dirty.ratio": "half"})
