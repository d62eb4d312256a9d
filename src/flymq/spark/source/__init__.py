"""The source: reads are planned as offset ranges, fetched and decoded to Arrow in the tasks."""
