"""``.keras`` archives."""
