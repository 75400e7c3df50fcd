"""Opening and writing files."""
