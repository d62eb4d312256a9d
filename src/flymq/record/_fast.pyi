# The compiled module has what the plain one has.
from flymq.record._plain import NO_OFFSET as NO_OFFSET
from flymq.record._plain import LastOffsets as LastOffsets
from flymq.record._plain import Record as Record
from flymq.record._plain import RecordLike as RecordLike
from flymq.record._plain import assign_batch as assign_batch
from flymq.record._plain import check_records as check_records
from flymq.record._plain import encode_columns as encode_columns
from flymq.record._plain import encode_kept as encode_kept
from flymq.record._plain import encode_records as encode_records
from flymq.record._plain import find_latest_time as find_latest_time
from flymq.record._plain import find_time as find_time
from flymq.record._plain import hash_keys as hash_keys
from flymq.record._plain import keyless_records as keyless_records
from flymq.record._plain import murmur2 as murmur2
from flymq.record._plain import parse_columns as parse_columns
from flymq.record._plain import parse_pairs as parse_pairs
from flymq.record._plain import parse_records as parse_records
from flymq.record._plain import parse_rows as parse_rows
from flymq.record._plain import untimely_records as untimely_records

def sip_hash(data: bytes, secret: int, other_secret: int, /) -> bytes: ...
