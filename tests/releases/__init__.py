"""Tests of :mod:`policytool.releases`."""
