"""TensorFlow checkpoints."""
