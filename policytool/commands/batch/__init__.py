"""One task done to many files."""
