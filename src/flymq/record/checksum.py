"""CRC32C (Castagnoli) by a native library that takes any buffer without a copy."""

from crc32c import crc32c

__all__ = ["crc32c"]
