"""The broker, independent of protocols: topics and their partitions, one event loop, no locks."""
