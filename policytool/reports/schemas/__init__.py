"""JSON schemas of the reports."""
