"""How values are written on the command line and in its output: units, start positions, messages."""
