"""The native gateway: one small file per family of requests, one table of handlers."""
