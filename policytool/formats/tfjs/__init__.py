"""TensorFlow.js layers models."""
