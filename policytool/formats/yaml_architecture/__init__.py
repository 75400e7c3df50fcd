"""Architecture YAML."""
