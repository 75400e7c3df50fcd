"""
What runs in a child process, under the interpreter that has TensorFlow.

These modules import nothing of policytool and keep to Python 3.7, so that a model's own old release can run them. In the child the package is called
``policytool_runtime`` and stands alone, which is why its modules import each other relatively. Jobs come as one JSON list; every event goes out as one
JSON line, at once, so that whoever finds the process dead knows how far it came.
"""
