"""Tests of :mod:`policytool.numerics.tuning`."""
