"""
From what a check measured to its verdict, and from a model to the job that measures: pure
functions.
"""
