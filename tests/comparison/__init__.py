"""Tests of how two models are compared."""
