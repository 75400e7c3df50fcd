"""Tests of :mod:`policytool.formats.sharded_weights`."""
