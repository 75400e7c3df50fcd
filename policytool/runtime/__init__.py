"""
The code of the child process, which runs models under an interpreter with Keras and TensorFlow, JAX
or torch.

These modules import nothing of policytool and keep to Python 3.7, so that a model's own old release
can run them. In the child the package is called ``policytool_runtime`` and stands alone, which is
why its modules import each other relatively. Jobs and events are JSON, one a line.
"""
