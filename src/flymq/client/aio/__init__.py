"""The SDK on asyncio."""
