"""Coordinators of groups and transactions, each on the partitions of an internal topic."""
