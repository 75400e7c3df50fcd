"""Pure functions that compute the verdict of a check from its measurements."""
