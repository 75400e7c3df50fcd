"""Tests of :mod:`policytool.commands`."""
