"""What a user does with an audit: run the command that it prints, and audit the result."""
