"""HTTP itself: connections, bodies, paths, errors, logins, and the application that serves them."""
