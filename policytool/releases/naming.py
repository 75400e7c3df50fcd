"""How Keras names things: layers after their classes, and the variables of its own layers."""

from __future__ import annotations

import re
from typing import Final

USUAL_VARIABLES: Final = (
    *("embeddings", "depthwise_kernel", "pointwise_kernel", "kernel", "recurrent_kernel", "bias"),
    *("gamma", "beta", "moving_mean", "moving_variance"),
)
"""What Keras' own layers call their variables, in the order in which they make them."""

_WORD = re.compile(r"(.)([A-Z][a-z]+)")
_EDGE = re.compile(r"([a-z])([A-Z])")


def snake_case(class_name: str) -> str:
    """
    Return the name that Keras makes of a class: ``MaxPooling2D`` gives ``max_pooling2d``,
    ``ConvLSTM2D`` gives ``conv_lst_m2d``.

    keras/src/utils/naming.py, ``to_snake_case``; the same two substitutions in Keras 2.
    """
    return _EDGE.sub(r"\1_\2", _WORD.sub(r"\1_\2", re.sub(r"\W+", "", class_name))).lower()
