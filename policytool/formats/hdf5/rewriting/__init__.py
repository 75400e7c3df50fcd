"""HDF5 rewritten without decoding what does not change: attributes, objects, raw chunks."""
