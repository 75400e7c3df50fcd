"""Ops on tensors of a graph: those of Python, of ``keras.ops``, and of TensorFlow in tf_keras."""

from __future__ import annotations

from typing import Any


def call(keras: Any, name: str, values: list[Any], config: dict[str, Any]) -> Any:
    """Return what an op makes of tensors."""
    raise NotImplementedError(name, values, config, keras)
