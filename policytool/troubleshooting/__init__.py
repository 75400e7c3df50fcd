"""
Error messages of Keras and TensorFlow, with their causes, and the search for them in a traceback.

The entries are data, and the search reads no models.
"""
