"""Translators: bytes of a protocol to calls of the broker and back. Protocols do not know each other."""
