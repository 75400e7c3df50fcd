"""SavedModels, with and without Keras metadata."""
