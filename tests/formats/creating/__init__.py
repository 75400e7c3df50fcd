"""Tests of files written from nothing."""
