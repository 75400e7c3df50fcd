"""Tests of the values for measured results."""
