"""Other message systems, each started here from its released files and loaded as FlyMQ is, in the same run.

A driver knows how to fetch its system (`python -m benchmarks.peers install`), how to start it for a promise of
durability, and how to speak to it over a plain socket with prepared bytes, so that no client library limits it.
"""
