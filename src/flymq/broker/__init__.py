"""The broker behind every protocol: topics and their partitions, one event loop, no locks."""
