"""The values that a check measures."""
