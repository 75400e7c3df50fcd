"""The releases of Keras and TensorFlow, with the classes, arguments and formats of each."""
