"""Authentication: users and logins."""
