"""The host: clock, disk, network, entropy, tasks and threads. Every side effect passes through here, so that a
simulation can put a virtual clock, a faulty disk and a faulty network in their place."""
