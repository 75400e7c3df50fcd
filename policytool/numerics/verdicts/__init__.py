"""From what a check measured to its verdict: pure functions."""
