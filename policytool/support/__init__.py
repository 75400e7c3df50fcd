"""What knows nothing of models: errors, limits, files, processes and text formats."""
