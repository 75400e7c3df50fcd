"""What a check measured, as values: one module for each kind of thing."""
