"""One file of batches and its indexes: append at the end, find by offset or time, verify checksums on first read."""
