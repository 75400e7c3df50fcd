"""Tests of :mod:`policytool.helpers`."""
