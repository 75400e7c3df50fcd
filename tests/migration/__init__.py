"""Tests of :mod:`policytool.migration`."""
