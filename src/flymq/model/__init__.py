"""The vocabulary: names, offsets, levels, limits and errors. Values only; nothing here does anything."""
