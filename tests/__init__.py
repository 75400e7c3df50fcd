"""Tests of policytool; they mirror the package."""
