"""The SDK for code without an event loop: the same names, the same behaviour, on one background loop."""
