"""What every member of a kind has to hold, stated once."""
