"""Tests of the way from a temporary file to the output, for rewritten and created models."""
