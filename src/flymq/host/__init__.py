"""The host: clock, disk, entropy, tasks and threads. Every side effect passes through here, so that a simulation can
put a virtual clock and a faulty disk in their place."""
