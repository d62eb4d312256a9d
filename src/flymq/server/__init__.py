"""A broker as a program: its settings, how it is put together, started and stopped."""
