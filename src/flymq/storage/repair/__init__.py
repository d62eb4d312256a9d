"""Repair a log that no broker uses: examine it, salvage what is whole, rebuild what can be derived, take back cuts."""
