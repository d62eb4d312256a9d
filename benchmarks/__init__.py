"""Programs that measure FlyMQ beside a limit or a peer in the same run. Never timed tests: machines are noisy."""
