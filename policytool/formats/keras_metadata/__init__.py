"""A ``keras_metadata.pb`` without the SavedModel around it."""
