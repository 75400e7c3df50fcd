"""
The inputs of a check: the user's arrays, or seeded values in the range that the layers accept.
"""
