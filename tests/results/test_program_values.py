"""Models and arrays of the calling program, which the Python functions save to private files."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import policytool
from policytool.api import CheckCall
from policytool.results.program_values import ProgramValues
from policytool.runtime.feeding.given_arrays import with_names
from tests.conftest import MIXED_H5, MIXED_KERAS, run
from tests.helpers.cases import for_each

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = np.arange(12, dtype="float32").reshape(4, 3)


class Model:
    """A model as Keras has it; the functions recognize its class by name and package."""

    __module__ = "keras.src.models.model"
    name = "my model"

    def save(self, filepath: str) -> None:
        """Save a model."""
        shutil.copy(MIXED_KERAS, filepath)


class Data:
    """Batches as ``keras.utils.PyDataset`` has them."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> Any:
        return ROWS[2 * place : 2 * place + 2], np.array([place, place])


def saved(inputs: Any, **options: Any) -> dict[str, dict[str, Any]]:
    """Return the arrays in the private files for inputs and labels."""
    with ProgramValues() as values:
        call = values.saved(CheckCall("m.h5", inputs=inputs, **options), {})
        return {
            name: dict(np.load(str(path)))
            for name in ("inputs", "labels")
            if (path := getattr(call, name)) is not None
        }


def test_live_model_is_saved_and_named() -> None:
    """The private file is removed; reports and the command have its name without a directory."""
    model = policytool.inspect(Model())
    assert (model.path, model.command) == ("my_model.keras", "policytool inspect my_model.keras")
    assert model.layers == policytool.inspect(MIXED_KERAS).layers
    with pytest.raises(policytool.UsageError, match="set output, or preview=True"):
        policytool.tune(Model(), to="mixed_float16")


def endless() -> Iterator[Any]:
    """Yield batches without end."""
    while True:
        yield ROWS


@for_each(
    ("value", "expected", "options"),
    [
        (ROWS, {"arr_0": ROWS}, {}),
        ([ROWS, ROWS[:, 0]], {"arr_0": ROWS, "arr_1": ROWS[:, 0]}, {}),
        ({"x": ROWS}, {"x": ROWS}, {}),
        (iter([ROWS[:1], ROWS[1:]]), {"arr_0": ROWS}, {}),
        (endless(), {"arr_0": np.tile(ROWS, (2, 1))}, {"batches": 2}),
        (Data(), {"arr_0": ROWS}, {}),
        (np.array(["a", "bc"], dtype=object), {"arr_0": np.array(["a", "bc"])}, {}),
    ],
)
def test_arrays_and_batches_are_saved(
    value: Any, expected: dict[str, Any], options: dict[str, Any]
) -> None:
    arrays = saved(value, **options)["inputs"]
    assert arrays.keys() == expected.keys()
    assert all(np.array_equal(arrays[name], expected[name]) for name in expected)


def test_labels_in_batches_are_used_for_a_metric() -> None:
    assert "labels" not in saved(Data())
    assert saved(Data(), metric="accuracy")["labels"]["arr_0"].tolist() == [0, 0, 1, 1]


@for_each(
    ("value", "words"),
    [
        (5, "a value of type int; expected a path, an array"),
        ([3], "a value of type int, which is not an array"),
        (iter(()), "no batches"),
        (endless(), "above the input-batches limit of 1000"),
        (iter([ROWS, ROWS[:, :2]]), "differ in the names or the shapes"),
        (np.array([object()]), "Python objects"),
    ],
)
def test_other_values_are_usage_errors(value: Any, words: str) -> None:
    with pytest.raises(policytool.UsageError, match=words):
        saved(value)


def test_other_paths_are_usage_errors() -> None:
    for call in (policytool.inspect, policytool.audit, policytool.check, policytool.load):
        with pytest.raises(policytool.UsageError, match=r"value of type int; expected a path"):
            call(5)  # type: ignore[arg-type]  # that is what is tried
    with pytest.raises(policytool.UsageError, match="expected a string"):
        policytool.explain(b"x")  # type: ignore[arg-type]  # that is what is tried


def test_arrays_without_names_get_those_of_the_inputs() -> None:
    assert with_names({"arr_1": 1, "arr_0": 0}, ["b", "a"]) == {"b": 0, "a": 1}
    assert with_names({"": 0}, ["x"]) == {"x": 0}
    assert with_names({"arr_0": 0}, ["a", "b"]) == {"arr_0": 0}


def test_directory_stands_for_its_only_model(tmp_path: Path) -> None:
    """Files that are not models do not count."""
    model = Path(shutil.copy(MIXED_H5, tmp_path))
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    assert policytool.inspect(tmp_path) == policytool.inspect(model)
    shutil.copy(MIXED_KERAS, tmp_path)
    with pytest.raises(policytool.ModelFileError, match="specify one model in it"):
        policytool.inspect(tmp_path)


def test_command_has_the_options_of_the_call(tmp_path: Path) -> None:
    """The command makes the same result."""
    output = tmp_path / "new model.h5"
    result = policytool.migrate(
        MIXED_H5,
        to="float32",
        set={"mlp/dense_a": "float64"},
        include=["outputs", "exceptions"],
        output=output,
        verify=False,
        preview=True,
        limit={"json-bytes": 2**30},
    )
    ended = run(*shlex.split(result.command)[1:], "--format", "json")
    assert json.loads(ended.out) == result.to_dict()
    assert "--no-verify" in result.command
