"""Tests of which findings count."""
