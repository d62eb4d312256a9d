"""Values as columns: JSON, MessagePack or Avro, with a record that cannot be decoded as a row that says why."""

from flymq.spark.values.decoding import (
    DATA,
    ERROR,
    ERROR_HEADER,
    dead_letters,
    decode_avro,
    decode_json,
    decode_messagepack,
)

__all__ = ["DATA", "ERROR", "ERROR_HEADER", "dead_letters", "decode_avro", "decode_json", "decode_messagepack"]
