"""Tests of :mod:`policytool.support.text`."""
