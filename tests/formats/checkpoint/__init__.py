"""Tests of :mod:`policytool.formats.checkpoint`."""
