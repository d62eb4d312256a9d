"""Other message systems, each started from its released files and loaded like FlyMQ, in the same run.

A driver knows how to fetch its system (`python -m benchmarks.peers install`), how to start it with a durability level,
and its protocol over a plain socket with prepared bytes, so that no client library is the bottleneck.
"""
