"""The SDK. Its cores are pure; `aio` is the implementation, `sync` the same names for code without an event loop."""
