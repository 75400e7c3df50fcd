"""Tests of :mod:`policytool.cli`."""
