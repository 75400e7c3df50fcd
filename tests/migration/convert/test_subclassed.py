"""
Archives of subclassed models, whose layers stand in no config: what the other library finds of
them, and what nobody can know. ``tests/compat/test_conversion_cases.py`` asks the libraries.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import h5py
import numpy as np
import pytest

import policytool
from tests.helpers.small_models import keras_zip

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.commands.migrate import Migration

DENSE = ((4, 3), (3,))
NORM = ((3,), (3,), (3,), (3,))


def write_archive(
    path: Path, keras: str, build: object, **groups: tuple[tuple[int, ...], ...]
) -> None:
    """Write a subclassed model with layers in these groups; ``__`` stands for a slash."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as file:
        for name, shapes in groups.items():
            for number, shape in enumerate(shapes):
                file[f"{name.replace('__', '/')}/vars/{number}"] = np.ones(shape, "float32")
    config = {
        "module": None,
        "class_name": "Net",
        "config": {"units": 3},
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


def convert(path: Path, target: str) -> Migration:
    """Return what comes of an archive for another library."""
    return policytool.migrate(path, target=target, output=path.with_name("converted.keras"))


def test_keras3_gets_the_places_of_keras2_and_the_shape(tmp_path: Path) -> None:
    """It looks in the list for what it does not find below an attribute."""
    source = tmp_path / "source.keras"
    shape = {"input_shape": [2, 4]}
    write_archive(source, "2.21.0", shape, layers__dense=DENSE, norm=NORM)
    conversion = convert(source, "keras3").plan.conversion
    assert conversion is not None
    content = conversion.content
    assert isinstance(content.config, dict)
    assert content.config["build_config"] == shape
    assert {"/".join(one.path[:-2]) for one in content.placements} == {"layers/dense", "norm"}


@pytest.mark.parametrize(
    ("keras", "target", "groups", "text"),
    [
        ("3.15.1", "tf_keras", {"a": DENSE, "layers__dense": DENSE}, "no file says"),
        ("2.21.0", "keras3", {"zed": DENSE, "layers__dense": DENSE}, "where it stands"),
        ("2.21.0", "keras3", {"parts__dense": DENSE, "layers__dense": DENSE}, "where it stands"),
    ],
)
def test_unknown_places_are_refused_by_the_class(
    tmp_path: Path,
    keras: str,
    target: str,
    groups: dict[str, tuple[tuple[int, ...], ...]],
    text: str,
) -> None:
    """Keras 3 stores attributes before ``layers`` by their names, Keras 2 those behind it."""
    source = tmp_path / "source.keras"
    write_archive(source, keras, {"input_shape": [2, 4]}, **groups)
    (refusal,) = convert(source, target).plan.refusals
    assert "(Net)" in refusal.message
    assert text in refusal.message


@pytest.mark.parametrize("build", [None, {"shapes_dict": {"a_shape": [2, 4], "b_shape": [2, 4]}}])
def test_a_model_that_the_target_cannot_build_is_refused(tmp_path: Path, build: object) -> None:
    """It would load no variables, and say nothing."""
    source = tmp_path / "source.keras"
    write_archive(source, "3.15.1", build, **{"": DENSE})
    (refusal,) = convert(source, "tf_keras").plan.refusals
    assert "has no input shape" in refusal.message


def test_several_listed_layers_of_one_class_are_warned_of(tmp_path: Path) -> None:
    """Those of a dict stand in another order in Keras 3."""
    source = tmp_path / "source.keras"
    groups = {"layers__dense": DENSE, "layers__dense_1": DENSE}
    write_archive(source, "2.21.0", {"input_shape": [2, 4]}, **groups)
    assert "layer-order" in {note.code for note in convert(source, "keras3").plan.notes}
