"""The service layer of the broker: the only way from a gateway to the broker. Every call has a caller."""
