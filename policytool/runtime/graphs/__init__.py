"""Compares saved graphs with their rewrites by TensorFlow's automatic mixed precision."""
