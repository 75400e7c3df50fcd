"""
What one does without policytool: load the model with Keras and read each layer's policy.

Runs under the interpreter that has Keras.
"""

from __future__ import annotations

import sys
from importlib import import_module

library = (
    "tf_keras" if sys.argv[1].endswith(".savedmodel") else "keras"
)  # Keras 3 loads no SavedModel
model = import_module(library).saving.load_model(sys.argv[1], compile=False)
for layer in model.layers:
    sys.stdout.write(f"{layer.name} {layer.dtype_policy.name}\n")
