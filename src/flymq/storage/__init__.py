"""The segmented log: one partition is one directory of files that survive any crash. No `await` in log and segment:
a state change is one synchronous step, so nothing here needs a lock."""
