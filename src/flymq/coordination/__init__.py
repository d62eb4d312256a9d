"""Who reads what, how far, and what counts: groups, offsets and transactions as state without side effects.

Every change is decided first (`decide_*` returns what to write), then appended to an internal topic, then applied. So
the state of a coordinator is what its log says, and replaying the log gives it again. Time is passed in.
"""
