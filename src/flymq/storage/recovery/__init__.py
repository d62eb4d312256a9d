"""Open a log: trust it after a clean shutdown, scan from the last checkpoint after a crash."""
