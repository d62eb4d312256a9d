"""One file for each family of operations: an HTTP request becomes a call of the service, and its result JSON."""
