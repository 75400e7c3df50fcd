"""Keras weights in several HDF5 files."""
