"""
What a check feeds its models with: given arrays, or seeded ones in the range of what the layers
take.
"""
