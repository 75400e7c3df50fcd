"""
The search of ``tune`` for the layers that must stay in float32, so that a model with a 16-bit
policy meets an objective: the objective, the search, and its result.
"""
