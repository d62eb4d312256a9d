"""HTTP/1.1 without I/O: parse requests, encode responses."""
