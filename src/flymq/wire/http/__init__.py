"""HTTP/1.1 without I/O: requests out of bytes, responses into them."""
