"""Pairing the layers of candidate and reference, with replacements for layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from policytool.runtime.engine.layer_hooks import layer_paths_by_id


def layer(class_name: str, name: str, *inner: Any) -> Any:
    """Return a replacement for a layer with nested layers."""
    return type(class_name, (SimpleNamespace,), {})(
        name=name, get_config=dict, _flatten_layers=lambda **_: inner
    )


def paths(model: Any, like: Any) -> dict[str, str]:
    """Return the path of each layer by name, for layers whose path changes."""
    result = layer_paths_by_id(model, like)
    flat = [model, *model._flatten_layers()]  # noqa: SLF001  # as the libraries have it
    return {item.name: result[id(item)] for item in flat}


def test_numbers_in_names_count_up_with_every_model() -> None:
    """Layers at the same place are paired if only the numbers in their names differ."""
    like = layer("Model", "net", layer("Dense", "dense"), layer("Dense", "dense_1"))
    model = layer("Model", "net", layer("Dense", "dense_1"), layer("Dense", "dense_2"))
    assert paths(model, like) == {"net": "net", "dense_1": "net/dense", "dense_2": "net/dense_1"}


def test_layers_with_equal_names_pair_in_any_order() -> None:
    """Keras 3.6 loads models with several inputs in another order."""
    like = layer("Model", "net", layer("Dense", "a"), layer("Dense", "b"))
    model = layer("Model", "net", layer("Dense", "b"), layer("Dense", "a"))
    assert paths(model, like) == {"net": "net", "a": "net/a", "b": "net/b"}


def test_another_order_and_a_number() -> None:
    """Layers with equal names are paired by name, and the remaining layers by class."""
    like = layer("Model", "net", layer("Input", "x"), layer("Dense", "a"), layer("Own", "own"))
    model = layer("Model", "net", layer("Own", "own_1"), layer("Dense", "a"), layer("Input", "x"))
    assert paths(model, like) == {"net": "net", "x": "net/x", "a": "net/a", "own_1": "net/own"}


def test_layer_that_only_one_model_has_keeps_its_path() -> None:
    """The layer is reported as called in one model only."""
    like = layer("Model", "net", layer("Dense", "a"))
    model = layer("Model", "net", layer("Dense", "a"), layer("Dropout", "drop"))
    assert paths(model, like) == {"net": "net", "a": "net/a", "drop": "net/drop"}


def test_of_a_class_that_one_has_more_of_nothing_is_guessed() -> None:
    """The files may contain different layers."""
    like = layer("Model", "net", layer("Dense", "a"))
    model = layer("Model", "other", layer("Dense", "b"), layer("Dense", "c"))
    assert paths(model, like) == {"other": "net", "b": "net/b", "c": "net/c"}
