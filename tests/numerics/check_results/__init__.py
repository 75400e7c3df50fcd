"""Tests of what was measured, as values."""
