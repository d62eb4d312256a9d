"""The SDK: pure modules here, the asyncio implementation in `aio`, a blocking API with the same names in `sync`."""
