"""Tests of :mod:`policytool.numerics.verdicts`."""
