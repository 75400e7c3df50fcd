"""How the work on a file grows with its content."""
