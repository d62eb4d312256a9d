"""The partitions that lie on this broker: written, read, waited for and maintained here."""
