"""Tests of the reader of TensorFlow checkpoints."""
