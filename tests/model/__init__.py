"""Tests of :mod:`policytool.model`."""
