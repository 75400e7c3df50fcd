"""What several tests use: models, stand-ins, marks and paths."""
