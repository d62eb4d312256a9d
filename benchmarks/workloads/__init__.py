"""Typical workloads, one family per module: each has `run(quick)`, which returns rows.

The load is prepared batches on plain sockets unless a row says otherwise, so that the broker is the bottleneck.
"""
