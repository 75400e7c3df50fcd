"""Batches from ``--inputs MODULE:FUNCTION``, in modules that do not need TensorFlow."""

from __future__ import annotations

import itertools
import os
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from policytool.runtime.feeding.batches import Feeder
from policytool.runtime.feeding.recipes import Recipe
from policytool.runtime.feeding.slots import Slot
from policytool.runtime.library import Refused

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE = (Slot("values", [None, 3], "float32"),)
TWO = (*ONE, Slot("ids", [None], "int32"))
OPEN = (Slot("series", [None, None], "float32"),)
FIXED = (Slot("values", [4, 3], "float32"),)
COUNT = itertools.count()


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a directory of the user from which modules are imported."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    known = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def given(
    place: Path, code: str, slots: tuple[Slot, ...] = ONE, *, name: str = "", **wanted: Any
) -> Any:
    """Return the inputs from the function ``made`` of a module with some code."""
    module = f"own_inputs_{next(COUNT)}"
    (place / f"{module}.py").write_text(f"import numpy as np\n{code}\n", encoding="utf-8")
    feeder: Any = object.__new__(Feeder)
    feeder.slots, feeder.notes = slots, []
    feeder.fixed = slots[0].shape[0] if slots[0].shape else None
    feeder.batch_size = feeder.fixed or wanted.get("batch_size") or 8
    most = {"batches": 5, "bytes": 1000}
    beyond = {"beyond_batches": "too many", "beyond_bytes": "too much"}
    feeder.options = {
        "file": None,
        "function": name or f"{module}:made",
        "directory": str(place),
        "batches": None,
        "batch_size": None,
        "most": {**most, **beyond},
        **wanted,
    }
    feeder._fed_inputs = lambda batches, kind, hows: SimpleNamespace(  # noqa: SLF001  # no tensors
        batches=batches, kind=kind, hows=hows, notes=feeder.notes, size=feeder.batch_size
    )
    recipes = [Recipe("", lambda random, shape: np.zeros(shape)) for _ in slots]
    return feeder.from_user(recipes)


def refusal(place: Path, code: str, slots: tuple[Slot, ...] = ONE, **wanted: Any) -> str:
    """Return the error message for a function."""
    with pytest.raises(Refused) as caught:
        given(place, code, slots, **wanted)
    assert caught.value.code == "user-function"
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "code",
    [
        "def made():\n    for _ in range(2): yield np.ones((2, 3))",
        "def made():\n    for _ in range(2): yield {'values': np.ones((2, 3))}",
        "def made():\n    for _ in range(2): yield [np.ones((2, 3))]",
        "def made():\n    return [np.ones((2, 3)), (np.ones((2, 3)),)]",
        "class made:\n    def __iter__(self): return iter([np.ones((2, 3))] * 2)",
        "def made():\n    return map(lambda n: np.ones((n, 3)), (2, 2))",
    ],
)
def test_a_function_returns_or_yields_batches(place: Path, code: str) -> None:
    """A batch is an array, a dict by input name, or a list in the order of inputs."""
    result = given(place, code)
    assert [[array.shape for array in batch] for batch in result.batches] == [[(2, 3)], [(2, 3)]]
    assert (result.kind, result.hows, result.size) == ("given", ["given, cast from float64"], 2)


@pytest.mark.parametrize(
    "value", ["{'ids': ids, 'values': values}", "(values, ids)", "[values, ids]"]
)
def test_several_inputs_are_assigned_by_name_or_order(place: Path, value: str) -> None:
    code = f"values, ids = np.ones((2, 3), 'float32'), np.arange(2)\ndef made(): yield {value}"
    (result,) = given(place, code, TWO).batches
    assert [array.dtype.name for array in result] == ["float32", "int32"]


@pytest.mark.parametrize("value", ["{'values': np.ones((20, 3))}", "np.ones((20, 3))"])
def test_one_array_is_cut_like_a_file(place: Path, value: str) -> None:
    """A single array is split like a file into batches of the default size or the user's size."""
    code = f"def made(): return {value}"
    assert [len(batch[0]) for batch in given(place, code).batches] == [8, 8, 4]
    assert [len(batch[0]) for batch in given(place, code, batches=2).batches] == [8, 8]
    assert [len(batch[0]) for batch in given(place, code, batch_size=15).batches] == [15, 5]


def test_batches_are_unchanged_unless_a_size_is_set(place: Path) -> None:
    """Batches can differ in size and other dimensions."""
    code = "def made():\n    yield np.ones((3, 5))\n    yield np.ones((6, 2))"
    assert [batch[0].shape for batch in given(place, code, OPEN).batches] == [(3, 5), (6, 2)]
    sizes = [batch[0].shape for batch in given(place, code, OPEN, batch_size=4).batches]
    assert sizes == [(3, 5), (4, 2), (2, 2)]
    fixed = given(place, "def made(): yield np.ones((8, 3))", FIXED)
    assert [len(batch[0]) for batch in fixed.batches] == [4, 4]


def test_text_may_be_python_s(place: Path) -> None:
    """Python strings are converted to text as in TensorFlow tensors."""
    code = "def made(): yield np.array([['a', b'b']], dtype=object)"
    (result,) = given(place, code, (Slot("words", [None, 2], "string"),)).batches[0]
    assert result.tolist() == [[b"a", b"b"]]


def test_an_endless_function_ends_with_the_number_of_batches(place: Path) -> None:
    """Without a number, or above the size limit, it is an error."""
    code = "def made():\n    while True: yield np.ones((2, 3), 'float32')"
    assert len(given(place, code, batches=7).batches) == 7
    assert refusal(place, code).endswith(":made returned too many")
    large = "def made():\n    while True: yield np.ones((90, 3), 'float32')"
    assert refusal(place, large, batches=7).endswith(":made returned too much")


def test_the_function_runs_in_the_user_s_directory(place: Path) -> None:
    """The directory is restored after import, calls and each batch."""
    before = os.getcwd()  # noqa: PTH109  # as the function sees it
    (place / "data.npy").write_bytes(b"")
    code = (
        "import os\nseen = [os.getcwd()]\n"
        "def made():\n    seen.append(os.getcwd())\n"
        "    assert os.path.exists('data.npy') and set(seen) == {os.getcwd()}\n"
        "    yield np.ones((2, 3))"
    )
    assert len(given(place, code).batches) == 1
    assert os.getcwd() == before  # noqa: PTH109


def test_nan_is_noted(place: Path) -> None:
    result = given(place, "def made(): return [np.full((2, 3), np.nan)] * 2")
    assert [note.partition(":")[2] for note in result.notes] == [
        "made returned NaN or infinity in values"
    ]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import nowhere_at_all", "cannot be imported: ModuleNotFoundError: No module named"),
        ("def made(:", "cannot be imported: SyntaxError: "),
        ("raise SystemExit(3)", "cannot be imported: SystemExit: 3"),
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero (own_inputs_"),
        ("other = 1", "has no function made"),
        ("made = 1", "has no function made"),
        ("def made(): raise ValueError('bad\\nfile')", ":made raised ValueError: bad (own_inputs_"),
        ("def made(): raise SystemExit", ":made raised SystemExit"),
        ("def made():\n    yield np.ones((2, 3))\n    1 / 0", "raised ZeroDivisionError"),
        ("def made(path): yield 1", ":made raised TypeError: made() missing 1 required"),
        ("def made():\n    if False: yield 1", ":made returned no batches"),
        ("def made(): return []", ":made returned no batches"),
        ("def made(): pass", ":made returned None, not batches of arrays"),
        ("def made(): return 3", ":made returned a value of type int, not batches of arrays"),
        ("def made(): return ['x']", "has a value of type str for input values, which is not an"),
        ("def made(): yield None", "batch 1 of "),
        ("def made(): yield {'values': [[1, 2, 3]]}", "has a value of type list for input values"),
        (
            "def made(): yield {'value': np.ones((2, 3))}",
            "contains value, but the model expects values",
        ),
        (
            "def made(): yield {'values': np.ones((2, 3)), 'y': np.ones(2)}",
            "contains values, y, but the model expects values",
        ),
        ("def made(): yield {}", "contains no array, but the model expects values"),
        (
            "def made(): yield np.ones((2, 3)), np.ones(2)",
            "but the model expects values; return the inputs only, without labels",
        ),
        (
            "def made(): yield [np.ones((2, 3))] * 3",
            "contains 3 values, but the model expects values",
        ),
        (
            "def made():\n    yield np.ones((2, 3))\n    yield np.ones((2, 4))",
            "input values expects the shape (any, 3), but batch 2 has (2, 4)",
        ),
        (
            "def made(): yield np.ones((0, 3))",
            "contains an empty array of the shape (0, 3) for input",
        ),
        ("def made(): yield np.array([[None] * 3])", "expects float32, but batch 1 has object"),
        ("def made(): yield np.full((2, 3), 'a')", "expects float32, but batch 1 has <U1"),
    ],
)
def test_invalid_functions_are_rejected(place: Path, code: str, message: str) -> None:
    """The error is one line with the function, or with the batch and the input."""
    assert message in refusal(place, code)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "def made(): yield np.ones((2, 3))",
            "contains one array, but the model expects 2 inputs: values, ids",
        ),
        (
            "def made(): yield np.ones((2, 3)), np.arange(3)",
            "the arrays in batch 1 of own_inputs_",
        ),
    ],
)
def test_batches_for_several_inputs(place: Path, code: str, message: str) -> None:
    assert message in refusal(place, code, TWO)


def test_rows_that_do_not_fill_a_fixed_batch_are_rejected(place: Path) -> None:
    """Rows that do not fill a batch of the model's fixed size are an error, as in a file."""
    message = refusal(place, "def made(): yield np.ones((6, 3))", FIXED)
    assert message.startswith("the model accepts only batches of 4 rows, but batch 1 has 6 rows")


def test_missing_module_is_an_error_with_its_name(place: Path) -> None:
    message = refusal(place, "", name="own_missing_module:made")
    assert message.startswith(
        "--inputs own_missing_module:made: the module own_missing_module cannot be imported: "
    )


def test_an_array_that_cannot_be_made(place: Path) -> None:
    """A tensor whose values cannot be read is an error."""
    code = (
        "class Tensor:\n    def __array__(self, *_, **__): raise OSError('no values')\n"
        "def made(): yield Tensor()"
    )
    message = refusal(place, code)
    assert "cannot be converted to an array: OSError: no values" in message
