"""The implementation of each command, independent of the command line."""
