"""Benchmarks: FlyMQ compared with a limit or a peer in the same run. They are not timed tests: machines are noisy."""
