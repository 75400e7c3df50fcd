"""What migrate changes: plans of edits, and conversions between releases."""
