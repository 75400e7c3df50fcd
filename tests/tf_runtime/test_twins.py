"""Which layer of a candidate is which of the reference, with objects that stand for layers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from policytool.tf_runtime.engine.layer_hooks import layer_paths_by_id


def layer(class_name: str, name: str, *inner: Any) -> Any:
    """Return what looks like a layer that holds others."""
    return type(class_name, (SimpleNamespace,), {})(
        name=name, get_config=dict, _flatten_layers=lambda **_: inner
    )


def paths(model: Any, like: Any) -> dict[str, str]:
    """Return by the name of each layer of a model, which differ, the path that it gets."""
    found = layer_paths_by_id(model, like)
    flat = [model, *model._flatten_layers()]  # noqa: SLF001  # as the libraries have it
    return {one.name: found[id(one)] for one in flat}


def test_numbers_in_names_count_up_with_every_model() -> None:
    """What stands at the same place is the same layer."""
    like = layer("Model", "net", layer("Dense", "dense"), layer("Dense", "dense_1"))
    model = layer("Model", "net", layer("Dense", "dense_1"), layer("Dense", "dense_2"))
    assert paths(model, like) == {"net": "net", "dense_1": "net/dense", "dense_2": "net/dense_1"}


def test_layers_of_the_same_names_may_stand_in_another_order() -> None:
    """Keras 3.6 loads a model with several inputs so."""
    like = layer("Model", "net", layer("Dense", "a"), layer("Dense", "b"))
    model = layer("Model", "net", layer("Dense", "b"), layer("Dense", "a"))
    assert paths(model, like) == {"net": "net", "a": "net/a", "b": "net/b"}


def test_another_order_and_a_number() -> None:
    """The name tells of those that have one in both, and the class of the rest."""
    like = layer("Model", "net", layer("Input", "x"), layer("Dense", "a"), layer("Own", "own"))
    model = layer("Model", "net", layer("Own", "own_1"), layer("Dense", "a"), layer("Input", "x"))
    assert paths(model, like) == {"net": "net", "x": "net/x", "a": "net/a", "own_1": "net/own"}


def test_a_layer_that_the_other_lacks_keeps_its_path() -> None:
    """It is told as one that a single model calls."""
    like = layer("Model", "net", layer("Dense", "a"))
    model = layer("Model", "net", layer("Dense", "a"), layer("Dropout", "drop"))
    assert paths(model, like) == {"net": "net", "a": "net/a", "drop": "net/drop"}


def test_of_a_class_that_one_has_more_of_nothing_is_guessed() -> None:
    """Two files may hold other layers."""
    like = layer("Model", "net", layer("Dense", "a"))
    model = layer("Model", "other", layer("Dense", "b"), layer("Dense", "c"))
    assert paths(model, like) == {"other": "net", "b": "net/b", "c": "net/c"}
