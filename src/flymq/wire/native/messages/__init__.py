"""The messages of the native protocol: MessagePack maps with string keys, one class each.

A field that equals its default is omitted on the wire, and unknown keys are ignored, so that fields can be added
without a new protocol version.
"""
