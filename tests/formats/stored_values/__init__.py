"""Tests of the reading of stored values."""
