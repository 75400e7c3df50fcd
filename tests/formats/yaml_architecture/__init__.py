"""Tests of :mod:`policytool.formats.yaml_architecture`."""
