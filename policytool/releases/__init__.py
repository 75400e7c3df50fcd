"""What the releases of Keras and TensorFlow are, and what each of them knows."""
