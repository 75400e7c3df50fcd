"""Tests of :mod:`policytool.support.processes`."""
