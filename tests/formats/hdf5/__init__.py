"""Tests of :mod:`policytool.formats.hdf5`."""
