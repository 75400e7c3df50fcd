"""HDF5: whole models, and weights."""
