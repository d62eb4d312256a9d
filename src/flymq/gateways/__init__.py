"""Gateways: translate a protocol into calls of the service and back. Gateways do not import each other."""
