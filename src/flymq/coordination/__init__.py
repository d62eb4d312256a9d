"""Coordination of groups, committed offsets and transactions: pure state machines, without side effects.

Every change is decided first (`decide_*` returns what to write), then appended to an internal topic, then applied. So
the state of a coordinator can be rebuilt by replaying its log. Time is passed in.
"""
