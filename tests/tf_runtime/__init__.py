"""Tests of :mod:`policytool.tf_runtime`."""
