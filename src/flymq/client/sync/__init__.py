"""The blocking API of the SDK: the same names and behaviour as `aio`, run on one background event loop."""
