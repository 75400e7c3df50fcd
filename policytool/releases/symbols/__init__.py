"""Which classes, functions and ops only compute, and which do harm."""
