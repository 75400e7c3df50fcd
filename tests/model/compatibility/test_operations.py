"""
What the report says of operations of Keras 3 in functional models: a call is compared with the
arguments that it uses, for each release.

The configs are those that Keras 3.15.1 writes; releases were given models of all operations
(``fixtures/operations.py``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.releases import data, keras_operations
from policytool.releases.releases import KERAS3, LOADERS, family_of, newest
from tests.conftest import run
from tests.helpers.convertible_models import input3, keras3, layer3
from tests.helpers.small_models import Config, instance, keras_members, keras_zip

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policytool.model.model import Verdict

NEWEST: Final = newest(KERAS3).id
MEASURED: Final = tuple(loader for loader in LOADERS if family_of(loader) == KERAS3)


def tensor(layer: str) -> Config:
    """Return an argument that is the output of a layer."""
    history = [layer, 0, 0]
    return instance("__keras_tensor__", shape=[None, 4, 8], dtype="float32", keras_history=history)


X: Final = tensor("x")
FULL: Final = {"class_name": "__slice__", "config": {"start": None, "stop": None, "step": None}}


def operation(
    class_name: str, *args: object, config: object = None, module: str = "numpy", **kwargs: object
) -> Config:
    """Return an operation in a graph, with one call."""
    own = config if isinstance(config, dict) else {}
    module = f"keras.src.ops.{module}"
    return layer3(class_name, "op", *args, module=module, kwargs=kwargs, **own)


def verdicts(path: Path, entry: Config) -> Mapping[str, Verdict]:
    """Return the verdict of each release on a model with an input and an operation."""
    model = keras3(input3("x", 4, 8), entry)
    file = keras_zip(path / "model.keras", keras_members(json.loads(json.dumps(model))))
    return policytool.inspect(str(file)).releases


PLAIN: Final = {
    "x + x": operation("Add", X, X),
    "x * 2": operation("Multiply", X, 2),
    "x[:, 0]": operation("GetItem", X, [FULL, 0]),
    "mean": operation("Mean", X, config={"axis": [1, 2], "keepdims": True}),
    "relu": operation("Relu", X, module="nn"),
    "stack": operation("Stack", [X, X], config={"axis": -1}),
    "where": operation("Where", X, x1=X, x2=0.0),
    "einsum": operation("Einsum", X, X, config={"subscripts": "bij,bij->b"}),
    "cast": operation("Cast", X, module="core", config={"dtype": "float16"}),
    "arguments by name": operation("Subtract", x1=X, x2=X),
    "argument with a default": operation("Average", X, config={"axis": 1}),
}


@pytest.mark.parametrize("name", PLAIN)
def test_calls_with_known_arguments_load_in_the_newest_release(tmp_path: Path, name: str) -> None:
    """
    An operation whose arguments the newest release has loads in it: residual models, slices and
    reductions.
    """
    verdict = verdicts(tmp_path, PLAIN[name])[NEWEST]
    assert (verdict.loads, verdict.reason, verdict.not_judged) == (True, None, None)


def test_an_operation_without_differences_loads_in_every_release(tmp_path: Path) -> None:
    """``x + x``, whose two arguments are unchanged since Keras 3.0."""
    found = verdicts(tmp_path, PLAIN["x + x"])
    assert [loader for loader in MEASURED if found[loader].loads] == list(MEASURED)


FAILING: Final = {
    "missing class": (
        operation("Rot90", X, config={"k": 1, "axes": [0, 1]}),
        "keras3.6",
        "the operation Rot90 does not exist",
    ),
    "new config argument": (
        operation("ScatterUpdate", X, X, X, module="core", config={"reduction": "add"}),
        "keras3.6",
        "the operation ScatterUpdate has no argument `reduction`",
    ),
    "name in config": (
        operation("Mean", X, config={"axis": 1, "keepdims": False}),
        "keras3.6",
        "the operation Mean has no argument `name`",
    ),
    "moved to config": (
        operation("Slice", X, [0, 1, 0], [1, 2, 1], module="core"),
        NEWEST,
        "the operation Slice expects the argument `shape` in its config",
    ),
    "moved to call": (
        operation("Slice", X, [0, 1, 0], module="core", config={"shape": [1, 2, 1]}),
        "keras3.6",
        "the operation Slice expects the argument `shape` in its call",
    ),
    "unknown call argument": (
        operation("Add", X, X, precision="high"),
        NEWEST,
        "the operation Add has no argument `precision`",
    ),
    "too many positional arguments": (
        operation("Add", X, X, X),
        NEWEST,
        "the operation Add has no argument `#3`",
    ),
    "lacking call argument": (
        operation("Add", X),
        NEWEST,
        "the operation Add requires the argument `x2`",
    ),
    "slices in Keras 3.0": (
        PLAIN["x[:, 0]"],
        "keras3.0",
        "the operation GetItem does not support a list as the argument `key`",
    ),
    "axis that is written as a list": (
        operation("Argsort", X, config={"axis": [-1]}),
        NEWEST,
        "the operation Argsort does not support a list as the argument `axis`",
    ),
    "tuple that is written as a list": (
        operation("Histogram", X, config={"bins": 5, "range": [0, 1]}),
        NEWEST,
        "the operation Histogram does not support a list as the argument `range`",
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_failing_operation_is_reported_with_the_argument(tmp_path: Path, name: str) -> None:
    entry, loader, reason = FAILING[name]
    assert reason in [cause.reason for cause in verdicts(tmp_path, entry)[loader].causes]


def test_functions_and_unmeasured_operations_are_unknown_by_name(tmp_path: Path) -> None:
    """
    The verdict is unknown if an operation calls a function that is not in the file, or if no
    release has been measured with the operation.
    """
    function = {"module": "builtins", "class_name": "function", "config": "scale"}
    called = verdicts(tmp_path, operation("Map", function, X, module="core"))[NEWEST]
    assert (
        called.not_judged == "the operation Map calls the function scale, which is not in the file"
    )
    later = verdicts(tmp_path, operation("Later", X))[NEWEST]
    assert later.not_judged == "the operation Later was not tested in any release"


def test_activations_that_operations_call_are_found_by_name(tmp_path: Path) -> None:
    """Keras finds its own activations without code."""
    function = {"module": "builtins", "class_name": "function", "config": "relu"}
    assert verdicts(tmp_path, operation("Map", function, X, module="core"))[NEWEST].loads


def test_audit_reports_nothing_unknown_of_plain_operations(tmp_path: Path) -> None:
    """``audit --target keras3`` has no finding on unknown operations for sums, slices and means."""
    for name in ("x + x", "x[:, 0]", "mean"):
        verdicts(tmp_path, PLAIN[name])
        report = run("audit", tmp_path / "model.keras", "--target", "keras3", "--format", "json")
        assert "PT502" not in report.out, name
        assert "PT501" not in report.out, name


def test_measured_releases_accept_their_signatures() -> None:
    """
    An operation with all its arguments by name is accepted in each release in which they were
    measured.
    """
    table: Mapping[str, list[Any]] = data.read("operations")["operations"]
    number = frozenset({"number"})
    for name, entries in table.items():
        module, _, class_name = name.partition(".")
        for entry in entries:
            for loader in entry["loaders"]:
                found = keras_operations.signature(loader, module, class_name)
                assert found is not None
                use = keras_operations.OperationUse(
                    module=module,
                    class_name=class_name,
                    config=frozenset((key, number) for key in (*found.config, *found.required)),
                    kwargs=frozenset((key, number) for key in found.built.positional),
                )
                objections = keras_operations.objections(loader, use)
                assert not [one for one in objections if "a number" not in one.reason], name


@pytest.mark.parametrize(
    ("class_name", "axis", "fails"),
    [
        ("Flip", 2, False),
        ("Flip", [1, 3], True),
        ("Flip", -4, True),
        ("Stack", 3, False),
        ("Stack", 4, True),
        ("Nancumsum", 9, False),
    ],
)
def test_axis_of_the_tensor_is_checked_by_the_newest_release(
    tmp_path: Path,
    class_name: str,
    axis: object,
    fails: bool,  # noqa: FBT001
) -> None:
    """
    Keras 3.15 fails to load an operation whose axis its tensor does not have. Keras 3.0 to 3.12
    wrote 92 such models of 18 operations.
    """
    entry = operation(class_name, [X, X] if class_name == "Stack" else X, config={"axis": axis})
    reasons = {loader: str(verdict.reason) for loader, verdict in verdicts(tmp_path, entry).items()}
    assert ("has an axis that its tensor does not have" in reasons[NEWEST]) is fails
    assert "has an axis" not in reasons["keras3.6"]
