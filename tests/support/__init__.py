"""Tests of :mod:`policytool.support`."""
