"""The features of the cluster, as `kafka-features` shows them. Their levels come with the version of FlyMQ."""

from __future__ import annotations

from flymq.gateways.kafka.connection import KafkaConnection
from flymq.gateways.kafka.errors import ErrorCode
from flymq.wire.kafka.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

FEATURES = {
    "group.version": 1,  # KIP-848: groups with group.protocol=consumer
    "streams.version": 1,  # KIP-1071: groups with group.protocol=streams
    "transaction.version": 2,  # KIP-890: an epoch for every transaction; clients rely on it
}
"""Each feature is supported from level 0 to this one, and has this level."""
FEATURES_EPOCH = 1
"""Clients look at features again when it grows. They never change while a broker runs."""


def update_features(
    _connection: KafkaConnection, request: UpdateFeaturesRequest, _version: int
) -> UpdateFeaturesResponse:
    """Refuse every change; a feature may be set to the level that it has."""
    for update in request.feature_updates:
        if (problem := _problem(update)) is not None:
            message = f"Invalid update version {update.max_version_level} for feature {update.feature}. {problem}"
            return UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=message)
    return UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(update.feature) for update in request.feature_updates]
    )


def _problem(update: FeatureUpdateKey) -> str | None:
    level = FEATURES.get(update.feature)
    if level is None:
        return "The broker does not have this feature."
    if update.max_version_level != level:
        return f"The level is always {level}: it comes with the version of FlyMQ."
    return None
