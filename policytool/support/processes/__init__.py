"""Child processes: their limits and crashes, and pools of worker processes."""
