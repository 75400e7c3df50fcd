"""Tests of :mod:`policytool.commands.batch`."""
