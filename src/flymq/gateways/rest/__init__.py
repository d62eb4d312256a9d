"""HTTP: administration and records for whatever speaks JSON, and what monitoring asks for."""
