"""Unpacked ``.keras`` models, which are directories."""
