"""The way from a draft to its name, for rewritten and for created models."""
