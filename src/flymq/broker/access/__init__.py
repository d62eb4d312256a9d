"""Who is there: users and logins."""
