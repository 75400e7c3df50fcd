"""Each unit of a decoded model keeps a reference to its object in the file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from policytool.migration.convert import decoding, encoding
from policytool.migration.convert.architecture import walk
from policytool.migration.convert.target import Log, Target
from policytool.releases import keras_objects
from tests.helpers.convertible_models import load, written
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import dense, instance, sequential

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "name",
    [
        "keras2.1.6/nested_models.yaml",
        "keras3.15/shared_layer.keras",
        "tf2.3/wrappers.h5",
        "tf2.5/mha_mixed",
        "tf2.15/shared_layer/keras_metadata.pb",
        "tf_keras2.21/rnn.h5",
    ],
)
def test_each_layer_is_decoded_with_its_site(name: str) -> None:
    """
    Layers that share an object in the file have the same site, and every other layer has its own
    site.
    """
    loaded = load(FIXTURES / name)
    units = [unit for unit in walk(decoding.decode(loaded)) if unit.role != "operation"]
    sites = [loaded.sites[unit.site] if unit.site is not None else None for unit in units]
    for unit, site in zip(units, sites, strict=True):
        if site is None:  # the input of a Sequential is no object of a SavedModel
            assert loaded.is_saved_object
            assert unit.class_name == "InputLayer"
        else:
            assert unit.name in {site.name, site.given_name, *(names[-1] for names in site.also_at)}
            assert unit.class_name == site.class_name


def test_layers_with_equal_names_in_a_list_have_different_sites(tmp_path: Path) -> None:
    """Each is decoded from its own object."""
    cells = [
        instance("LSTMCell", name="cell", trainable=True, dtype=dtype, units=2)
        for dtype in ("float32", "float64")
    ]
    stacked = {"class_name": "StackedRNNCells", "config": {"name": "cells", "cells": cells}}
    recurrent = instance("RNN", name="rnn", trainable=True, dtype="float32", cell=stacked)
    loaded = written(tmp_path / "model.json", sequential(recurrent))
    sites = [unit.site for unit in walk(decoding.decode(loaded)) if unit.name == "cell"]
    assert [loaded.layers[site or 0].policy for site in sites] == ["float32", "float64"]


def test_layers_in_other_objects_are_no_sites(tmp_path: Path) -> None:
    """
    A layer in the config of an initializer does not get the site of a layer with the same name.
    """
    initializer = {"class_name": "Own", "config": {"inner": dense("inner")}}
    inner = dense("outer", kernel_initializer=initializer, projection=dense("inner"))
    loaded = written(tmp_path / "model.json", sequential(inner))
    sites = [unit.site for unit in walk(decoding.decode(loaded)) if unit.name == "inner"]
    assert sites.count(None) == 1
    assert len(sites) == 2


def test_layers_in_a_shared_layer_have_the_sites_of_the_first_place(tmp_path: Path) -> None:
    """Keras 3 writes the config of a shared layer again with the same id."""
    shared = {
        "class_name": "TimeDistributed",
        "config": {"name": "steps", "trainable": True, "layer": dense("inner")},
        "shared_object_id": 5,
    }
    nested = {**sequential(shared, name="nested"), "shared_object_id": 7}
    loaded = written(tmp_path / "model.json", sequential(shared, nested))
    units: dict[str, list[int | None]] = {}
    for unit in walk(decoding.decode(loaded)):
        units.setdefault(unit.name, []).append(unit.site)
    assert len(set(units["steps"])) == len(set(units["inner"])) == 1
    assert len(units["steps"]) == len(units["inner"]) == 2
    assert units["inner"][0] is not None


FULL = keras_objects.full(None, "Ones", {}, "my_package>first")
SHORT = keras_objects.short("my_package>first", {})


@pytest.mark.parametrize(
    ("loader", "container", "expected"),
    [
        ("keras3.15", "keras", FULL),
        ("keras3.15", "h5", FULL),
        ("tf_keras2.21", "keras", FULL),
        ("tf2.15", "keras", FULL),
        ("tf_keras2.21", "h5", SHORT),
        ("tf2.12", "keras", SHORT),
        ("tf2.4", "h5", SHORT),
    ],
)
def test_registered_initializer_keeps_the_registered_name(
    tmp_path: Path, loader: str, container: str, expected: object
) -> None:
    model = sequential(dense(batch_input_shape=[None, 3], kernel_initializer=FULL))
    root = decoding.decode(written(tmp_path / "model.json", model))
    config: Any = encoding.encode(root, Target(loader=loader, container=container), Log())
    layer = config["config"]["layers"][-1]
    assert layer["config"]["kernel_initializer"] == expected


@pytest.mark.parametrize(
    ("container", "expected"), [("keras", "Scale"), ("h5", "my_package>first")]
)
def test_registered_layer_keeps_the_registered_name(
    tmp_path: Path, container: str, expected: str
) -> None:
    """Keras 2 writes it as the class name in HDF5."""
    scale = keras_objects.full(None, "Scale", {"name": "scale"}, "my_package>first")
    model = sequential(dense(batch_input_shape=[None, 3]), scale)
    root = decoding.decode(written(tmp_path / "model.json", model))
    config: Any = encoding.encode(root, Target(loader="tf2.12", container=container), Log())
    layer = config["config"]["layers"][-1]
    assert layer["class_name"] == expected
    assert layer.get("registered_name", "my_package>first") == "my_package>first"
