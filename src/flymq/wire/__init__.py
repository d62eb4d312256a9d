"""Sans-I/O codecs: bytes in, messages out, and back. One package per protocol; they do not import each other."""
