"""Tests of :mod:`policytool.formats.keras_metadata`."""
