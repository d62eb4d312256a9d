"""Decode values to columns: JSON, MessagePack or Avro. A record that cannot be decoded gets an error column."""

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
