"""The host: clock, disk, network, entropy, tasks and threads. All side effects go through it, so that a simulation
can replace them by a virtual clock, a faulty disk and a faulty network."""
