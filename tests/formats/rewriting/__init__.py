"""Writers, one module each, and what holds for all of them."""
