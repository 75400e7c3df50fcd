"""Tests of :mod:`policytool.formats.architecture`."""
