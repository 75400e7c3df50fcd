"""Tests of :mod:`policytool.support.files`."""
