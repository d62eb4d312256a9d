"""The record batch: the one unit on the wire, on disk and between brokers. Bytes in, values out; no I/O."""
