"""Tests of planning: pure decisions about read models."""
