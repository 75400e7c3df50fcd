"""Tests of :mod:`policytool.formats.tfjs`."""
