"""The Kafka error code of each FlyMQ error. The one place where they are mapped."""

from __future__ import annotations

from enum import IntEnum

from flymq.model import errors
from flymq.model.errors import FlyMQError


class ErrorCode(IntEnum):
    """The error codes of Kafka that are used here."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    TRANSACTION_ABORTABLE = 120
    INVALID_REGULAR_EXPRESSION = 128
    STREAMS_INVALID_TOPOLOGY = 130


CODES: dict[type[FlyMQError], ErrorCode] = {
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.UnsupportedVersion: ErrorCode.UNSUPPORTED_VERSION,
    errors.RequestTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.MessageTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.InvalidTopicName: ErrorCode.INVALID_TOPIC,
    errors.InvalidSetting: ErrorCode.INVALID_CONFIG,
    errors.InvalidPartitions: ErrorCode.INVALID_PARTITIONS,
    errors.InvalidReplicationFactor: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.InvalidBatch: ErrorCode.INVALID_RECORD,
    errors.InvalidRecord: ErrorCode.INVALID_RECORD,
    errors.KeyRequired: ErrorCode.INVALID_RECORD,
    errors.InvalidTimestamp: ErrorCode.INVALID_TIMESTAMP,
    errors.DecompressedTooLarge: ErrorCode.INVALID_RECORD,
    errors.EmptyBatch: ErrorCode.INVALID_RECORD,
    errors.CorruptBatch: ErrorCode.CORRUPT_MESSAGE,
    errors.UnsupportedBatchVersion: ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    errors.UnsupportedCompression: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    errors.TopicNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicIdNotFound: ErrorCode.UNKNOWN_TOPIC_ID,
    errors.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    errors.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.TopicExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.PartitionNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.OffsetNotAvailable: ErrorCode.OFFSET_NOT_AVAILABLE,
    errors.RecordNotFound: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.NotEnoughReplicasAfterAppend: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.InvalidReplicaAssignment: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.NoReassignmentInProgress: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    errors.ElectionNotNeeded: ErrorCode.ELECTION_NOT_NEEDED,
    errors.PreferredLeaderNotAvailable: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    errors.EligibleLeadersNotAvailable: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.WrongProducerId: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.CoordinatorEpochFenced: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    errors.UnknownProducer: ErrorCode.UNKNOWN_PRODUCER_ID,
    errors.InvalidTransactionState: ErrorCode.INVALID_TXN_STATE,
    errors.TransactionAborted: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.TransactionNotFound: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.TransactionInProgress: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.StaleConnection: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.InvalidTransactionTimeout: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.StorageError: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.MetadataUnavailable: ErrorCode.REQUEST_TIMED_OUT,
    errors.IndeterminateResult: ErrorCode.REQUEST_TIMED_OUT,
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.CoordinatorUnavailable: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.CoordinatorOffline: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.GroupNotFound: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.StaleGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    errors.MemberFenced: ErrorCode.FENCED_INSTANCE_ID,
    errors.InconsistentAssignors: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.InvalidSessionTimeout: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    errors.MemberEpochFenced: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    errors.InstanceInUse: ErrorCode.UNRELEASED_INSTANCE_ID,
    errors.UnsupportedAssignor: ErrorCode.UNSUPPORTED_ASSIGNOR,
    errors.InvalidTopicPattern: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.InvalidTopology: ErrorCode.STREAMS_INVALID_TOPOLOGY,
    errors.OtherGroupType: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.UnstableOffsets: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    errors.AuthenticationFailed: ErrorCode.SASL_AUTHENTICATION_FAILED,
    errors.TooManyLogins: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.UnknownMetricsSubscription: ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    errors.MetricsTooLarge: ErrorCode.TELEMETRY_TOO_LARGE,
    errors.MetricsTooOften: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    errors.RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
}


def code_of(error: FlyMQError | None) -> ErrorCode:
    """Return the code of an error: that of its class, or of its closest base class that has one."""
    if error is None:
        return ErrorCode.NONE
    for cls in type(error).__mro__:
        if (code := CODES.get(cls)) is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR
