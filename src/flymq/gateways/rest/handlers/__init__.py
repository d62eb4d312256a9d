"""One file per family of operations: an HTTP request becomes a call of the service, its result JSON."""
