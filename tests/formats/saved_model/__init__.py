"""Tests of :mod:`policytool.formats.saved_model`."""
