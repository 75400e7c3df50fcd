"""
``tune``: which layers have to stay in float32 for a model to meet an objective under a policy: the
objective, the search, and what it found.
"""
