"""The REST gateway: administration and records in JSON, health and metrics."""
