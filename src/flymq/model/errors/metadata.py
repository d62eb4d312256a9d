"""The metadata store."""

from __future__ import annotations

from flymq.model.errors.base import FlyMQError


class MetadataError(FlyMQError):
    """The metadata store returned an error."""

    code = "METADATA_ERROR"
    hint = "See the broker's log for the store's error."


class MetadataUnavailable(MetadataError):
    """The metadata store cannot be reached; nothing was changed."""

    code = "METADATA_UNAVAILABLE"
    retriable = True
    hint = "Retry; if it persists, check the metadata store and the network to it."


class IndeterminateResult(MetadataError):
    """The metadata store may or may not have made the change: its response was lost."""

    code = "INDETERMINATE_RESULT"
    hint = "Read the keys again to find out whether the change was made; do not retry blindly."


class RevisionCompacted(MetadataError):
    """The metadata store has compacted the history of this revision."""

    code = "REVISION_COMPACTED"
    hint = "Read all keys again and watch from the revision of that read."


class SessionEnded(MetadataError):
    """The session has expired and its keys were deleted."""

    code = "SESSION_ENDED"
    hint = "Open a new session and write its keys again."


class MetadataRefused(MetadataError):
    """The metadata store refuses the request."""

    code = "METADATA_REFUSED"
    hint = "The message has the store's reason: check user, password and permissions, or the store's disk quota."


class MetadataServerUnsupported(MetadataError):
    """The server of the metadata store is too old, or not the right one."""

    code = "METADATA_SERVER_UNSUPPORTED"
    hint = "Use etcd 3.5.28 or later, 3.6.9 or later, or 3.7, and list only members of one etcd cluster."


class BrokerIdInUse(MetadataError):
    """Another broker of the cluster has this broker id."""

    code = "BROKER_ID_IN_USE"
    hint = "Give each broker its own --id. If the data directory of this broker was replaced, stop the old one first."


class InvalidTxn(MetadataError):
    """The metadata transaction breaks a rule of the metadata store."""

    code = "INVALID_TXN"
    hint = "Split it, or use each key only once; the message says which rule it breaks."


class CorruptMetadata(MetadataError):
    """The metadata file is corrupt, or is not a FlyMQ metadata file."""

    code = "CORRUPT_METADATA"
    hint = (
        "Restore metadata.* from a backup, or run `flymq repair catalog` while the broker is stopped: it restores what "
        "can be read and adopts the topics that are in the data directory."
    )


class CatalogLost(MetadataError):
    """There are topics in the data directory, but no metadata."""

    code = "CATALOG_LOST"
    hint = (
        "Restore metadata.* from a backup, or run `flymq repair catalog`, which adopts the topics. If the broker is to "
        "start empty, give it another data directory."
    )


class MetadataTooNew(MetadataError):
    """The metadata file was written by a newer version of FlyMQ."""

    code = "METADATA_TOO_NEW"
    hint = "Start the newer version, or restore the file from a backup made before the upgrade."


class ClusterNotEmpty(MetadataError):
    """The metadata store is not empty: a single broker can only be adopted by a cluster without topics and brokers."""

    code = "CLUSTER_NOT_EMPTY"
    hint = (
        "Give another --name, under which etcd has no keys. To add records to a cluster that exists, mirror the topics."
    )


class AdoptionUnfinished(MetadataError):
    """The metadata of a single broker has not been copied completely, so no broker can start with it."""

    code = "ADOPTION_UNFINISHED"
    hint = "Wait until `flymq cluster adopt` has ended. If it was interrupted, run it again."


class NotStoppedCleanly(MetadataError):
    """The broker was not stopped cleanly: its logs have to be recovered before it can be adopted by a cluster."""

    code = "NOT_STOPPED_CLEANLY"
    hint = "Start the broker once more as it was, and stop it with SIGTERM or Ctrl-C."
