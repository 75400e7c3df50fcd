"""One backward step of a reference and of a candidate, under several loss scales."""
