"""Random models, and a proof of conversions on them: ``python -m tests.random_models --help``."""
