"""Tests of :mod:`policytool.model.compatibility`."""
