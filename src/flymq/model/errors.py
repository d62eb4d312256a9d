"""Every failure FlyMQ expects, as a noun with a meaning.

A `FlyMQError` has a stable `code` that travels over every protocol, says whether trying again can help
(`retriable`), and carries a `hint` for the person who reads it. Raise it where you know it; translate it once, in
a gateway's table. What cannot happen is an `assert`, not an error of this file.
"""

from __future__ import annotations

from typing import ClassVar


class FlyMQError(Exception):
    """Something expected went wrong; `code` says what, `hint` says what to do."""

    code: ClassVar[str] = "UNKNOWN"
    retriable: ClassVar[bool] = False
    hint: str = ""

    def __init__(self, message: str = "", *, hint: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").split("\n")[0].rstrip("."))
        if hint is not None:
            self.hint = hint

    @property
    def message(self) -> str:
        return str(self.args[0])


# --- what a client sent ---------------------------------------------------------------------------------------------


class InvalidRequest(FlyMQError):
    """The request has a wrong or missing field."""

    code = "INVALID_REQUEST"
    hint = "Check the field named in the message against docs/formats/native-protocol.md."


class BrokenFrame(FlyMQError):
    """The bytes on the connection are not a FlyMQ frame."""

    code = "BROKEN_FRAME"
    hint = "A frame starts with 0xFB 0x01; check that the client speaks the protocol it was configured for."


class UnsupportedVersion(FlyMQError):
    """This version of the protocol is not spoken here."""

    code = "UNSUPPORTED_VERSION"
    hint = "Use a client of the same major version as the broker."


class UnknownOpcode(FlyMQError):
    """This operation is not known here."""

    code = "UNKNOWN_OPCODE"
    hint = "The broker may be older than the client; upgrade the broker."


class RequestTooLarge(FlyMQError):
    """The request is larger than the broker accepts."""

    code = "REQUEST_TOO_LARGE"
    hint = "Send smaller batches, or raise `limits.request_bytes_max`."


class MessageTooLarge(FlyMQError):
    """The batch is larger than the topic accepts."""

    code = "MESSAGE_TOO_LARGE"
    hint = "Send a smaller message, or raise the topic's `max.message.bytes`."


class InvalidTopicName(FlyMQError):
    """The topic's name is not allowed."""

    code = "INVALID_TOPIC_NAME"
    hint = "Use 1 to 249 letters, digits, '.', '_' or '-'; not '.' or '..'."


class InvalidSetting(FlyMQError):
    """A setting has a value that is not allowed."""

    code = "INVALID_SETTING"
    hint = "Correct the value that the message names."


class InvalidPartitions(FlyMQError):
    """The number of partitions is not allowed."""

    code = "INVALID_PARTITIONS"
    hint = "Partitions can be added, never taken away, within `limits.topic_partitions_max`."


class InvalidReplicationFactor(FlyMQError):
    """There are not enough brokers for this replication factor."""

    code = "INVALID_REPLICATION_FACTOR"
    hint = "Use a replication factor of at most the number of brokers."


class ListenFailed(FlyMQError):
    """The broker cannot listen on this address."""

    code = "LISTEN_FAILED"
    hint = "Use an address of this machine for `listener.host`; ports below 1024 need special rights."


class AddressInUse(ListenFailed):
    """Another program listens on this port."""

    code = "ADDRESS_IN_USE"
    hint = "Stop the other program, or use another port: `--port N`, or `--port 0` for any free one."


class InternalError(FlyMQError):
    """The broker met a fault of its own."""

    code = "INTERNAL_ERROR"
    hint = "The broker's log has the details; please report them."


# --- record batches -------------------------------------------------------------------------------------------------


class InvalidBatch(FlyMQError):
    """The bytes are not a valid record batch."""

    code = "INVALID_BATCH"
    hint = "The batch was altered or cut on its way; send it again from its records."


class CorruptBatch(InvalidBatch):
    """The batch does not match its checksum."""

    code = "CORRUPT_BATCH"
    hint = "The bytes changed after the checksum was made. On disk: restore the partition from a replica or a backup."


class UnsupportedBatchVersion(InvalidBatch):
    """The batch is of the old message format 0 or 1."""

    code = "UNSUPPORTED_BATCH_VERSION"
    hint = "Use a client that writes record batches of magic 2 (Kafka 0.11 and later)."


class EmptyBatch(InvalidBatch):
    """A batch needs at least one record."""

    code = "EMPTY_BATCH"
    hint = "Add a record before building the batch."


class UnsupportedCompression(InvalidBatch):
    """The batch names a compression that is not known."""

    code = "UNSUPPORTED_COMPRESSION"
    hint = "Use none, gzip, snappy, lz4 or zstd."


class DecompressedTooLarge(InvalidBatch):
    """The batch would unpack to more than is allowed."""

    code = "DECOMPRESSED_TOO_LARGE"
    hint = "Send smaller batches; a small batch that unpacks to a huge one is refused unread."


# --- topics, partitions and offsets ---------------------------------------------------------------------------------


class TopicNotFound(FlyMQError):
    """There is no such topic."""

    code = "TOPIC_NOT_FOUND"
    hint = "Create it with `flymq topic create NAME`, or turn on `topics.auto_create`."


class TopicExists(FlyMQError):
    """A topic of this name exists already."""

    code = "TOPIC_EXISTS"
    hint = "Use another name, or alter the existing topic."


class PartitionNotFound(FlyMQError):
    """The topic has no such partition."""

    code = "PARTITION_NOT_FOUND"
    hint = "`flymq topic describe NAME` lists the partitions; they count from 0."


class NotLeader(FlyMQError):
    """This broker does not lead the partition."""

    code = "NOT_LEADER"
    retriable = True
    hint = "Refresh the metadata and ask the leader."


class TopicIdNotFound(TopicNotFound):
    """There is no topic of this id, or no longer."""

    code = "TOPIC_ID_NOT_FOUND"
    retriable = True
    hint = "Refresh the metadata: a topic that was deleted and created again has another id."


class FencedLeaderEpoch(FlyMQError):
    """The client knows an older leader of the partition."""

    code = "FENCED_LEADER_EPOCH"
    retriable = True
    hint = "Refresh the metadata and check the position against the new leader."


class UnknownLeaderEpoch(FlyMQError):
    """The client knows a newer leader of the partition than this broker does."""

    code = "UNKNOWN_LEADER_EPOCH"
    retriable = True
    hint = "Try again; the broker is about to learn of the new leader."


class OffsetOutOfRange(FlyMQError):
    """The log holds no such offset."""

    code = "OFFSET_OUT_OF_RANGE"
    hint = "Ask for the earliest or latest offset; older records may have been removed by retention."


class RecordNotFound(FlyMQError):
    """There is no record at this offset."""

    code = "RECORD_NOT_FOUND"
    hint = "The offset holds a transaction marker, an aborted record or one removed by compaction; read the next one."


class NotEnoughReplicas(FlyMQError):
    """Fewer replicas are in sync than the topic asks for."""

    code = "NOT_ENOUGH_REPLICAS"
    retriable = True
    hint = "Bring the missing brokers back, or lower the topic's `min.insync.replicas`."


# --- producers and transactions -------------------------------------------------------------------------------------


class OutOfOrderSequence(FlyMQError):
    """The batch does not follow the producer's last one: something between is missing."""

    code = "OUT_OF_ORDER_SEQUENCE"
    hint = "The producer lost a batch; start a new producer id, and a new transaction if one was open."


class ProducerFenced(FlyMQError):
    """A newer producer has taken over this producer's identity."""

    code = "PRODUCER_FENCED"
    hint = "Stop this producer: another one of the same transactional id runs."


class UnknownProducer(FlyMQError):
    """The broker does not remember this producer."""

    code = "UNKNOWN_PRODUCER"
    hint = "Its records have expired; start a new producer id."


class InvalidTransactionState(FlyMQError):
    """The transaction is not in a state that allows this."""

    code = "INVALID_TRANSACTION_STATE"
    hint = "Begin a transaction first; abort one that failed before beginning the next."


class TransactionAborted(FlyMQError):
    """The broker has aborted the transaction: it was open for too long, or a crash interrupted it."""

    code = "TRANSACTION_ABORTED"
    hint = "Get a new epoch with INIT_PRODUCER and repeat the transaction from its beginning."


class TransactionInProgress(FlyMQError):
    """The producer's last transaction is still being ended."""

    code = "TRANSACTION_IN_PROGRESS"
    retriable = True
    hint = "Try again in a moment."


class InvalidTransactionTimeout(InvalidRequest):
    """The transaction timeout is not allowed."""

    code = "INVALID_TRANSACTION_TIMEOUT"
    hint = "The message names the limits."


# --- the disk -------------------------------------------------------------------------------------------------------


class StorageError(FlyMQError):
    """The disk refused an operation."""

    code = "STORAGE_ERROR"
    retriable = True
    hint = "See the broker's log for the file and the system's answer."


class DiskFull(StorageError):
    """No space is left on the disk."""

    code = "DISK_FULL"
    hint = "Free some space or lower the topics' retention, then restart the broker or reopen the partition."


class DiskPermissionDenied(StorageError):
    """The broker may not use this file."""

    code = "DISK_PERMISSION_DENIED"
    hint = "Give the broker's user read and write access to its data directory."


class FileVanished(StorageError):
    """A file of the log is no longer there."""

    code = "FILE_VANISHED"
    hint = "Something else removed it; restore the partition from a replica or a backup."


class DirectoryLocked(StorageError):
    """Another process uses this data directory."""

    code = "DIRECTORY_LOCKED"
    retriable = False
    hint = "Stop the other broker, or give this one its own --data-dir."


class PartitionOffline(StorageError):
    """The partition was taken offline after a failure of its disk."""

    code = "PARTITION_OFFLINE"
    hint = "The message says what failed; mend it and restart the broker or reopen the partition."


class CorruptLog(StorageError):
    """The log holds bytes that are not what was written."""

    code = "CORRUPT_LOG"
    retriable = False
    hint = "The file and position are in the message; restore the partition from a replica or a backup."


class FsyncFailed(StorageError):
    """The disk could not make written data durable; the broker stops."""

    code = "FSYNC_FAILED"
    retriable = False
    hint = "Check the disk before starting the broker again: after a failed fsync, cached data cannot be trusted."


# --- the metadata store ---------------------------------------------------------------------------------------------


class MetadataError(FlyMQError):
    """The metadata store could not do what was asked."""

    code = "METADATA_ERROR"
    hint = "See the broker's log for what the store answered."


class MetadataUnavailable(MetadataError):
    """The metadata store cannot be reached; nothing was changed."""

    code = "METADATA_UNAVAILABLE"
    retriable = True
    hint = "Try again; if it lasts, check the metadata store and the way to it."


class IndeterminateResult(MetadataError):
    """The metadata store may or may not have made the change: its answer was lost."""

    code = "INDETERMINATE_RESULT"
    hint = "Read the keys again to learn whether the change was made; do not repeat it blindly."


class RevisionCompacted(MetadataError):
    """The metadata store has forgotten the changes since this revision."""

    code = "REVISION_COMPACTED"
    hint = "Read everything again and watch from the revision that read came with."


class SessionEnded(MetadataError):
    """The session has ended and its keys are gone."""

    code = "SESSION_ENDED"
    hint = "Open a new session and write its keys again."


class InvalidTxn(MetadataError):
    """The metadata transaction breaks a rule every engine has to keep."""

    code = "INVALID_TXN"
    hint = "Split it, or name each key once; the message says which rule was broken."


class CorruptMetadata(MetadataError):
    """The metadata file is damaged, or is not one of FlyMQ's."""

    code = "CORRUPT_METADATA"
    hint = "Restore the file from a backup. It knows the topics; their records lie beside it and are not touched."


class MetadataTooNew(MetadataError):
    """The metadata file was written by a newer FlyMQ."""

    code = "METADATA_TOO_NEW"
    hint = "Start the newer version again, or restore the file from a backup made before the upgrade."


# --- consumer groups ------------------------------------------------------------------------------------------------


class GroupNotFound(FlyMQError):
    """There is no such consumer group."""

    code = "GROUP_NOT_FOUND"
    hint = "`flymq group list` names the groups; one exists from its first member or commit on."


class UnknownMember(FlyMQError):
    """The group does not have this member, or no longer."""

    code = "UNKNOWN_MEMBER"
    hint = "The member was silent for longer than its session timeout; it joins again as a new one."


class StaleGeneration(FlyMQError):
    """The group has been shared out anew since; this member's share may belong to another one."""

    code = "STALE_GENERATION"
    hint = "Join the group again; commit only what the new share allows."


class RebalanceInProgress(FlyMQError):
    """The group is being shared out anew."""

    code = "REBALANCE_IN_PROGRESS"
    retriable = True
    hint = "Join the group again to get the new share."


class MemberIdRequired(FlyMQError):
    """The group has given this new member an id, `member_id`; it joins with it."""

    code = "MEMBER_ID_REQUIRED"
    retriable = True
    hint = "Join again with the id from the answer."
    member_id: str = ""


class MemberFenced(FlyMQError):
    """Another member has come with the same instance name and taken this one's place."""

    code = "MEMBER_FENCED"
    hint = "Stop this member, or give each one an instance name of its own."


class InconsistentAssignors(FlyMQError):
    """The member and the rest of the group have no assignor in common."""

    code = "INCONSISTENT_ASSIGNORS"
    hint = "Give all members of a group at least one common assignor."


class InvalidSessionTimeout(InvalidRequest):
    """The member's session timeout is not allowed."""

    code = "INVALID_SESSION_TIMEOUT"
    hint = "The message names the limits."


class GroupFull(FlyMQError):
    """The group has as many members as it may have."""

    code = "GROUP_FULL"
    hint = "Use fewer members; more of them than partitions have nothing to do."


class GroupNotEmpty(FlyMQError):
    """The group has members, which would not notice."""

    code = "GROUP_NOT_EMPTY"
    hint = "Stop all members of the group first."


class OffsetMetadataTooLarge(FlyMQError):
    """The note that goes with a committed offset is too long."""

    code = "OFFSET_METADATA_TOO_LARGE"
    hint = "Keep the note short; it is for people."


class UnstableOffsets(FlyMQError):
    """A transaction is about to commit an offset for this partition."""

    code = "UNSTABLE_OFFSETS"
    retriable = True
    hint = "Ask again when the transaction has ended."


# --- connections and who is behind them -----------------------------------------------------------------------------


class Unauthenticated(FlyMQError):
    """The connection must authenticate first."""

    code = "UNAUTHENTICATED"
    hint = "Give the client a username and a password."


class AuthenticationFailed(FlyMQError):
    """The username or the password is wrong."""

    code = "AUTHENTICATION_FAILED"
    hint = "Check the credentials; the broker's log names the user and the address."


class BrokerUnavailable(FlyMQError):
    """No broker could be reached."""

    code = "BROKER_UNAVAILABLE"
    retriable = True
    hint = "Check the address and that the broker runs: `flymq server start --dev` starts one on this machine."


class ConnectionLost(FlyMQError):
    """The connection ended before the answer came; the request may have been carried out."""

    code = "CONNECTION_LOST"
    retriable = True
    hint = "Try again; an idempotent producer does so without duplicates."


class RequestTimedOut(FlyMQError):
    """The answer did not come in time; the request may have been carried out."""

    code = "REQUEST_TIMED_OUT"
    retriable = True
    hint = "Try again, or allow more time with `request_timeout_ms`."


class UnknownBrokerError(FlyMQError):
    """The broker reported an error that this client does not know."""

    code = "UNKNOWN_BROKER_ERROR"
    hint = "The broker may be newer than the client; upgrade the client."


class UnknownRetriableError(UnknownBrokerError):
    """The broker reported an error that this client does not know, and that another try can help."""

    code = "UNKNOWN_RETRIABLE_ERROR"
    retriable = True


# --- HTTP -----------------------------------------------------------------------------------------------------------


class NoSuchResource(FlyMQError):
    """There is nothing at this path."""

    code = "NO_SUCH_RESOURCE"
    hint = "GET /docs lists the paths; the API's begin with /api/v1."


class MethodNotAllowed(FlyMQError):
    """The resource does not know this method."""

    code = "METHOD_NOT_ALLOWED"
    hint = "The Allow header of the answer lists the methods."


class NotAcceptable(FlyMQError):
    """The answer cannot be given in any form that the Accept header names."""

    code = "NOT_ACCEPTABLE"
    hint = "Accept application/json, or application/x-ndjson for records."


class UnsupportedMediaType(FlyMQError):
    """The body is of a type, or encoded in a way, that is not read here."""

    code = "UNSUPPORTED_MEDIA_TYPE"
    hint = "Send application/json, for records also application/x-ndjson; as it is, or packed by gzip."


class BodyTooSlow(FlyMQError):
    """The body did not arrive in time."""

    code = "BODY_TOO_SLOW"
    retriable = True
    hint = "Send it faster or in smaller pieces, or raise `rest.body_timeout_ms`."


class IdempotencyKeyReused(FlyMQError):
    """The Idempotency-Key was used before, for something else."""

    code = "IDEMPOTENCY_KEY_REUSED"
    hint = "Make a new key for each request; repeat a key only with the very same request."


class ConsumerNotFound(FlyMQError):
    """The group has no such consumer over HTTP, or no longer."""

    code = "CONSUMER_NOT_FOUND"
    hint = "A consumer that does not poll within its session timeout is dropped; create a new one."


class TransactionNotFound(FlyMQError):
    """There is no such transactional id."""

    code = "TRANSACTION_NOT_FOUND"
    hint = "GET /api/v1/transactions lists them; those unused for long are forgotten."


class BrokerStarting(FlyMQError):
    """The broker reads what is on its disk and does not serve yet."""

    code = "BROKER_STARTING"
    retriable = True
    hint = "Try again in a moment; GET /startupz tells when it is done."


# --- values, on the client's side -----------------------------------------------------------------------------------


class ClientClosed(FlyMQError):
    """The client has been closed."""

    code = "CLIENT_CLOSED"
    hint = "Use it within its `with` block, or before `close()`."


class NotSubscribed(FlyMQError):
    """The consumer reads nothing yet."""

    code = "NOT_SUBSCRIBED"
    hint = "Call subscribe(['topic']) first."


class SerializationFailed(FlyMQError):
    """A value could not be turned into bytes."""

    code = "SERIALIZATION_FAILED"
    hint = "Check the value against the serializer that was set."


class UnreadableRecord(FlyMQError):
    """A record that was read cannot be turned into a value; the fields say which one, and what its bytes are."""

    code = "UNREADABLE_RECORD"
    hint = "Look at the record; seek to the offset after it to go on."
    topic: str = ""
    partition: int = -1
    offset: int = -1
    key: bytes | None = None
    value: bytes | None = None


class DeserializationFailed(UnreadableRecord):
    """The deserializer refused a record's bytes."""

    code = "DESERIALIZATION_FAILED"
    hint = "The record was written with another serializer; seek past it, or read it without a deserializer."


class WrongEncryptionKey(UnreadableRecord):
    """The message was encrypted with a key this client does not have."""

    code = "WRONG_ENCRYPTION_KEY"
    hint = "Add the key that was used then to `decryption_keys`."


class AlteredMessage(UnreadableRecord):
    """The encrypted message was altered after it was written."""

    code = "ALTERED_MESSAGE"
    hint = "Do not trust it: someone or something changed its bytes."


class NotEncrypted(UnreadableRecord):
    """The message is not encrypted, though this client has an encryption key."""

    code = "NOT_ENCRYPTED"
    hint = "Set encryption_required=False to read messages from before encryption was turned on."


def all_errors() -> dict[str, type[FlyMQError]]:
    """Map each stable code to its class."""
    found: dict[str, type[FlyMQError]] = {}
    pending: list[type[FlyMQError]] = [FlyMQError]
    while pending:
        error = pending.pop()
        assert found.get(error.code, error) is error, f"two errors share the code {error.code}"
        found[error.code] = error
        pending.extend(error.__subclasses__())
    return found
