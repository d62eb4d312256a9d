"""HTTP itself: connections, bodies, paths, errors, authentication, and the ASGI application."""
