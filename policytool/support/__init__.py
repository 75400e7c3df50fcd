"""Code that does not depend on models: errors, limits, files, processes and text formats."""
