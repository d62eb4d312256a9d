"""Codecs without I/O: bytes in, messages out, and back. One folder per protocol; they do not know each other."""
