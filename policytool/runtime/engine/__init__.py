"""Traces two models as one function, and compares each layer when it is called."""
