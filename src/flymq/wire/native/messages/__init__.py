"""The messages of the native protocol: MessagePack maps with string keys, one class each.

A field that equals its default is left out on the wire, and keys a reader does not know are skipped: so fields can be
added without a new version of the protocol.
"""
