"""Where masks travel in a model, release by release, and how they are written into a graph."""
