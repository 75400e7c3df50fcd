"""The releases of Keras and TensorFlow that were measured."""

from __future__ import annotations

from typing import Final

LOADERS: Final = (
    *(
        "tf1.15",
        "tf2.0",
        "tf2.1",
        "tf2.2",
        "tf2.3",
        "tf2.4",
        "tf2.5",
        "tf2.9",
        "tf2.12",
        "tf2.15",
        "tf_keras2.21",
    ),
    *("keras3.0", "keras3.3", "keras3.6", "keras3.15"),
)
"""The loaders that were asked, oldest first within a family."""
