"""Architecture JSON."""
