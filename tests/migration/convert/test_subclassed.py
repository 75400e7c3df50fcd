"""
Archives of subclassed models, whose layers are not in a config: which variables the other library
finds, and which places are unknown. ``tests/compat/test_conversion_cases.py`` measures the
libraries.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

import policytool
from tests.helpers.small_models import instance3, keras_zip

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

DENSE = ((4, 3), (3,))
NORM = ((3,), (3,), (3,), (3,))


def write_archive(
    path: Path,
    keras: str,
    build: object,
    groups: Mapping[str, tuple[tuple[int, ...], ...]],
    *,
    names: Mapping[str, str] | None = None,
    inner: Mapping[str, object] | None = None,
) -> None:
    """
    Write a subclassed model with layers in the groups; ``__`` in a name is replaced with a slash.
    """
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for place, name in (names or {}).items():
            file.create_group(f"{place}/vars").attrs["name"] = name
        for name, shapes in groups.items():
            for number, shape in enumerate(shapes):
                file[f"{name.replace('__', '/')}/vars/{number}"] = np.ones(shape, "float32")
    config = {
        "module": None,
        "class_name": "Net",
        "config": {"units": 3, **(inner or {})},
        "registered_name": "pt>Net",
        "build_config": build,
    }
    keras_zip(
        path,
        {
            "metadata.json": json.dumps({"keras_version": keras}).encode(),
            "config.json": json.dumps(config).encode(),
            "model.weights.h5": buffer.getvalue(),
        },
    )


def convert(path: Path, target: str) -> policytool.Migration:
    """Return the result of converting an archive for another library."""
    return policytool.migrate(path, target=target, output=path.with_name("converted.keras"))


def test_keras3_gets_the_places_of_keras2_and_the_shape(tmp_path: Path) -> None:
    """
    An archive for Keras 3 keeps the places of Keras 2 and gets the input shape, because Keras 3
    searches the list for layers that are not below an attribute.
    """
    source = tmp_path / "source.keras"
    shape = {"input_shape": [2, 4]}
    write_archive(source, "2.21.0", shape, {"layers__dense": DENSE, "norm": NORM})
    conversion = convert(source, "keras3").plan.conversion
    assert conversion is not None
    content = conversion.content
    assert isinstance(content.config, dict)
    assert content.config["build_config"] == shape
    assert {"/".join(one.path[:-2]) for one in content.placements} == {"layers/dense", "norm"}


@pytest.mark.parametrize(
    ("keras", "target", "groups", "text"),
    [
        (
            "2.21.0",
            "keras3",
            {"zed": DENSE, "layers__dense": DENSE},
            "does not contain their order",
        ),
        (
            "2.21.0",
            "keras3",
            {"parts__dense": DENSE, "layers__dense": DENSE},
            "does not contain their order",
        ),
    ],
)
def test_unknown_order_of_attributes_is_rejected_with_the_class(
    tmp_path: Path,
    keras: str,
    target: str,
    groups: dict[str, tuple[tuple[int, ...], ...]],
    text: str,
) -> None:
    """Keras 3 stores attributes before ``layers`` by name and Keras 2 stores them after it."""
    source = tmp_path / "source.keras"
    write_archive(source, keras, {"input_shape": [2, 4]}, groups)
    (refusal,) = convert(source, target).plan.refusals
    assert "(Net)" in refusal.message
    assert text in refusal.message


@pytest.mark.parametrize("build", [None, {"shapes_dict": {"a_shape": [2, 4], "b_shape": [2, 4]}}])
def test_model_without_an_input_shape_is_rejected(tmp_path: Path, build: object) -> None:
    """The target could not build it and would silently load no variables."""
    source = tmp_path / "source.keras"
    write_archive(source, "3.15.1", build, {"": DENSE})
    (refusal,) = convert(source, "tf_keras").plan.refusals
    assert "has no input shape" in refusal.message


def test_several_listed_layers_of_one_class_are_warned_of(tmp_path: Path) -> None:
    """Keras 3 stores the layers of a dict in another order."""
    source = tmp_path / "source.keras"
    groups = {"layers__dense": DENSE, "layers__dense_1": DENSE}
    write_archive(source, "2.21.0", {"input_shape": [2, 4]}, groups)
    assert "layer-order" in {note.code for note in convert(source, "keras3").plan.notes}


SHAPE = {"input_shape": [2, 4]}
LSTM = ((3, 16), (4, 16), (16,))
CELL = {"a__cell": LSTM}
BLOCK = {"a__norm": NORM, "a__steps__dense": DENSE}


@pytest.mark.parametrize(
    ("groups", "names", "places"),
    [
        ({"a": DENSE}, {"a": "dense_4"}, {"layers/dense": "a"}),
        (
            {"a": DENSE, "b": DENSE, "c": NORM},
            {"a": "dense_5", "b": "dense_4", "c": "batch_normalization"},
            {"layers/dense_1": "a", "layers/dense": "b", "layers/batch_normalization": "c"},
        ),
        (
            {"all__dense": DENSE, "all__dense_1": DENSE},
            {"all/dense": "x", "all/dense_1": "head"},
            {"layers/dense": "all/dense", "layers/dense_1": "all/dense_1"},
        ),
        (CELL, {"a": "lstm", "a/cell": "lstm_cell"}, {"layers/lstm/cell": "a/cell"}),
        (
            BLOCK,
            {"a": "block", "a/norm": "batch_normalization", "a/steps/dense": "dense"},
            {"layers/block/norm": "a/norm", "layers/block/steps/dense": "a/steps/dense"},
        ),
        (
            {"a": DENSE, "b": DENSE},
            {"a": "linear", "b": "linear_1"},
            {"layers/linear": "a", "layers/linear_1": "b"},
        ),
        (
            {"a": NORM[:2], "c": NORM[:2]},
            {f"{one}": f"layer_normalization_{2 + n}" for n, one in enumerate("abc")},
            {"layers/layer_normalization": "a", "layers/layer_normalization_2": "c"},
        ),
        ({"a": DENSE}, {"a": "dense", "b": "dense_7"}, {"layers/dense": "a"}),
        ({"a__layer": DENSE}, {"a": "time_distributed"}, {"layers/time_distributed/layer": "a"}),
        ({"": DENSE}, {}, {"": ""}),
    ],
)
def test_layers_of_keras3_move_to_the_list_of_keras2(
    tmp_path: Path,
    groups: dict[str, tuple[tuple[int, ...], ...]],
    names: dict[str, str],
    places: dict[str, str],
) -> None:
    """
    Layers of Keras 3 move to the list of Keras 2 if their default names show class and order and
    their shapes agree.
    """
    source = tmp_path / "source.keras"
    write_archive(source, "3.15.1", SHAPE, groups, names={".": "net", **names})
    plan = convert(source, "tf_keras").plan
    assert plan.conversion is not None, plan.refusals
    found = {"/".join(one.path[:-2]) for one in plan.conversion.content.placements}
    assert found == set(places)
    several = len(places) > 1 and "cell" not in str(places)
    assert ("layer-order" in {note.code for note in plan.notes}) == several


@pytest.mark.parametrize(
    ("groups", "names", "text"),
    [
        ({"a": DENSE, "layers__dense": DENSE}, {"a": "dense", "layers/dense": "dense_1"}, "layers"),
        ({"a": DENSE}, {"a": "score"}, "class of a (score) is unknown"),
        ({"a": DENSE}, {"a": "out_0"}, "does not contain its class"),
        ({"a": NORM}, {"a": "dense_7"}, "does not have the variables of a Dense"),
        (CELL, {"a": "gru"}, "does not have the variables of a GRU"),
        ({"a": ((4,),)}, {"a": "rms_normalization"}, "which tf_keras 2.21 does not have"),
        ({"a": DENSE, "b": DENSE}, {"a": "dense", "b": "dense_7"}, "order of a (dense), b"),
        ({"a": DENSE}, {"b": "dense"}, "the name of a is unknown"),
        (BLOCK, {"a": "block", "b": "score"}, "class of a (block) is unknown"),
        (
            {**BLOCK, "b__norm": NORM, "b__steps__dense": DENSE},
            {"a": "block", "b": "own"},
            "class of a (block) is unknown",
        ),
        ({"a__layers__dense": DENSE}, {"a": "net"}, "class of a (net) is unknown"),
    ],
)
def test_layers_without_default_names_are_rejected(
    tmp_path: Path,
    groups: dict[str, tuple[tuple[int, ...], ...]],
    names: dict[str, str],
    text: str,
) -> None:
    """Keras 2 would search for them elsewhere or confuse them."""
    source = tmp_path / "source.keras"
    write_archive(source, "3.15.1", SHAPE, groups, names={".": "net", **names})
    (refusal,) = convert(source, "tf_keras").plan.refusals
    assert text in refusal.message


def test_archive_without_layer_names_is_rejected(tmp_path: Path) -> None:
    """An archive of Keras 3.0 to 3.5 is an error, because these releases write no layer names."""
    source = tmp_path / "source.keras"
    write_archive(source, "3.3.0", SHAPE, {"a": DENSE})
    (refusal,) = convert(source, "tf_keras").plan.refusals
    assert "does not contain layer names" in refusal.message


def test_converted_archive_can_be_converted_back(tmp_path: Path) -> None:
    """It has the places of Keras 2 and no contradicting layer names."""
    source = tmp_path / "source.keras"
    groups = {"layers__dense": DENSE, "layers__dense_1": DENSE, "norm": NORM}
    write_archive(source, "2.21.0", SHAPE, groups)
    convert(source, "keras3")
    back = policytool.migrate(
        source.with_name("converted.keras"), target="tf_keras", output=tmp_path / "back.keras"
    )
    assert back.plan.conversion is not None, back.plan.refusals
    found = {"/".join(one.path[:-2]) for one in back.plan.conversion.content.placements}
    assert found == {"layers/dense", "layers/dense_1", "norm"}


def test_layers_that_a_model_is_given_have_no_order(tmp_path: Path) -> None:
    """The class can assign them in another order than that of their creation."""
    source = tmp_path / "source.keras"
    dense = instance3("Dense", name="dense", trainable=True, units=3)
    names = {".": "net", "a": "dense", "b": "dense_1"}
    groups = {"a": DENSE, "b": DENSE}
    write_archive(source, "3.15.1", SHAPE, groups, names=names, inner={"encoder": dense})
    (refusal,) = convert(source, "tf_keras").plan.refusals
    assert "the model receives layers as arguments" in refusal.message
