"""Saved graphs against what TensorFlow's own automatic mixed precision makes of them."""
