"""The reader of TensorFlow's checkpoints."""
