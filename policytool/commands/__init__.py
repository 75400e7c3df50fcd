"""One module per command: what it does, without the command line."""
