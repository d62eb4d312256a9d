"""Text formats of the command line: durations and sizes, start positions, messages."""
