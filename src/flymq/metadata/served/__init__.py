"""The metadata store of one process, served to others on the same machine."""
