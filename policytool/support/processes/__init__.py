"""Child processes: their bounds, their crashes, and pools of them."""
