"""FlyMQ's own protocol: one small file for each family of requests, one table of handlers."""
