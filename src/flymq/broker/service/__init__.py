"""The front door of the broker: every operation of every protocol comes in here, with who asks."""
