"""
Regular expressions that take a number of steps linear in the text, for patterns and names of
strangers.
"""
