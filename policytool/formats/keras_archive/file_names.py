"""The names of the files in a ``.keras`` archive."""

from __future__ import annotations

from typing import Final

CONFIG: Final = "config.json"
METADATA: Final = "metadata.json"
WEIGHTS_SUFFIX: Final = ".weights.h5"
"""
``model.weights.h5``, or the shards ``model_00000.weights.h5``, ... that Keras 3.10 on can write.
"""

NPZ_SUFFIX: Final = ".weights.npz"
"""``model.weights.npz``, which Keras reads if there is no ``model.weights.h5``."""
