"""Tests of :mod:`policytool.numerics`."""
