"""Tests of :mod:`policytool.runtime`."""
