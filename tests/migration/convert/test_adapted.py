"""Values that ``adapt`` computed become arguments of layers."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

import policytool
from policytool.commands.migrate import Status
from policytool.formats import format_detection
from policytool.formats.saved_model import graph_bodies
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import instance3

if TYPE_CHECKING:
    from pathlib import Path

SEEN: Final = np.array([[-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 8], "float32")
"""Values and their counts."""


def model(path: Path, class_name: str, **config: Any) -> Path:
    """Write a model with one layer after an input, as tf_keras 2.21 does, without weights."""
    start = {"batch_input_shape": [None, 1], "dtype": config.pop("takes"), "name": "x"}
    layers = [
        {"class_name": "InputLayer", "config": start},
        {"class_name": class_name, "config": {"name": "layer", **config}},
    ]
    whole = {"class_name": "Sequential", "config": {"name": "model", "layers": layers}}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(whole)
        file.attrs["keras_version"], file.attrs["backend"] = "2.21.0", "tensorflow"
        weights = file.create_group("model_weights")
        weights.attrs["layer_names"] = [b"x", b"layer"]
        weights.create_group("x").attrs["weight_names"] = np.array([], "S1")
        weights.create_group("layer").attrs["weight_names"] = np.array([], "S1")
    return path


def with_variable(path: Path, name: str, values: Any) -> Path:
    """Add a variable of the layer to the file."""
    with h5py.File(path, "a") as file:
        layer = file["model_weights/layer"]
        layer.attrs["weight_names"] = [name.encode()]
        layer[name] = values
    return path


def converted(path: Path) -> tuple[Any, list[str]]:
    """Return the layer's config for Keras 3, and the messages of the conversion errors."""
    done = policytool.migrate(path, target="keras3", output=path.with_suffix(".keras"))
    assert done.plan.conversion is not None
    refusals = [one.message for one in done.plan.refusals]
    assert (done.status is Status.WRITTEN) is not bool(refusals)
    content: Any = done.plan.conversion.content.config
    return content["config"]["layers"][1]["config"] if content else None, refusals


@pytest.mark.parametrize(
    ("bins", "expected"),
    [(2, [1.0]), (4, [-1.0, 1.0, 3.0]), (10, [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0])],
)
def test_bins_are_computed_from_the_adapted_values(
    tmp_path: Path, bins: int, expected: list[float]
) -> None:
    """Equally many values per bin, or one bin per value if there are fewer values than bins."""
    path = model(tmp_path / "model.h5", "Discretization", takes="float32", num_bins=bins)
    config, refusals = converted(with_variable(path, "layer/summary:0", SEEN))
    assert not refusals
    assert config["bin_boundaries"] == expected


def test_bins_that_keras2_does_not_load_are_reported(tmp_path: Path) -> None:
    """
    A note reports stored bins that Keras 2 ignores when it loads the archive, so that its
    predictions differ (measured with tf_keras 2.21).
    """
    layers: list[dict[str, Any]] = [
        {"class_name": "InputLayer", "config": {"batch_input_shape": [None, 1], "name": "x"}},
        {"class_name": "Discretization", "config": {"name": "layer", "num_bins": 2}},
    ]
    for layer in layers:
        layer |= {"module": "keras.layers", "registered_name": None}
    whole = instance3("Sequential", "keras", name="model", layers=layers)
    weights = tmp_path / "model.weights.h5"
    with h5py.File(weights, "w") as file:
        file["layers/discretization/vars/0"] = SEEN
    path = tmp_path / "source.keras"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("config.json", json.dumps(whole))
        archive.writestr("metadata.json", json.dumps({"keras_version": "2.21.0"}))
        archive.write(weights, weights.name)
    done = policytool.migrate(path, target="keras3", output=tmp_path / "result.keras")
    assert done.status is Status.WRITTEN
    assert ["its predictions match the model before" in one.message for one in done.plan.notes] == [
        True
    ]


def test_missing_bins_are_rejected(tmp_path: Path) -> None:
    path = model(tmp_path / "model.h5", "Discretization", takes="float32", num_bins=4)
    assert "does not contain its bin boundaries" in converted(path)[1][0]


def test_missing_idf_weights_are_rejected(tmp_path: Path) -> None:
    """The weights are needed as factors."""
    given = {"vocabulary": ["[UNK]", "a"], "output_mode": "tf_idf"}
    path = model(tmp_path / "model.h5", "StringLookup", takes="string", **given)
    assert ["contains no idf_weights" in one for one in converted(path)[1]] == [True]


@pytest.mark.parametrize(
    ("more", "stored"),
    [
        ({"vocabulary": ["a", "b"]}, [0.375, 0.25, 0.5]),
        ({"vocabulary": ["[UNK]", "b"]}, [0.25, 0.5]),
        (
            {"vocabulary": ["a", "b"], "pad_to_max_tokens": True, "max_tokens": 5},
            [0.375, 0.25, 0.5, 0.0, 0.0],
        ),
        ({"vocabulary": ["a", "b"], "num_oov_indices": 2}, [0.375, 0.375, 0.25, 0.5]),
    ],
)
def test_idf_weights_are_stored_as_releases_store_these_weights(
    tmp_path: Path, more: dict[str, Any], stored: list[float]
) -> None:
    """The unknown word has the mean of all weights, and padding has zero."""
    given = {"output_mode": "tf_idf", "idf_weights": [0.25, 0.5], **more}
    path = model(tmp_path / "model.h5", "StringLookup", takes="string", **given)
    assert not converted(path)[1]
    document = format_detection.document(path.with_suffix(".keras"), "model.keras")
    assert [list(values) for values in document.adapted.values()] == [stored]


def test_the_words_of_a_table_are_read() -> None:
    """
    The vocabulary of a table is read from two constants of the graph, which contain the words and
    their numbers.
    """
    folder = FIXTURES / "tf2.15/string_lookup"
    assert format_detection.document(folder, "model").vocabularies == {("2",): "red\ngreen"}


@pytest.mark.parametrize(
    ("keys", "values", "inverts", "words"),
    [
        (["b", "a"], [2, 1], False, ["a", "b"]),
        ([2, 1], ["b", "a"], True, ["a", "b"]),
        ([70, 50], [1, 2], False, ["70", "50"]),
        ([2, 1], [50, 70], True, ["70", "50"]),
        (["a", "b"], [1], False, None),
        (["a"], ["b"], False, None),
    ],
)
def test_words_of_a_table_are_sorted_by_number(
    keys: list[str | int],
    values: list[str | int],
    inverts: bool,  # noqa: FBT001
    words: list[str] | None,
) -> None:
    """The words of a table are sorted by number; in an inverted table the numbers are the keys."""
    assert graph_bodies.in_order(keys, values, inverts=inverts) == words
