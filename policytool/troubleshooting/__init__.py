"""
Error messages of Keras and TensorFlow, with their causes, and the search for them in a traceback.

Entries are data. They depend on no model and no file.
"""
