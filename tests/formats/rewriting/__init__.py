"""Tests of the writers, one module each, and of their common behaviour."""
