"""Plans of edits, and conversions between releases, for ``migrate``."""
