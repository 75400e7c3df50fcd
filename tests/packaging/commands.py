"""The commands that an installed policytool must run, and what each must print."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

MODELS: Final[Mapping[str, tuple[str, ...]]] = {
    "hdf5": ("tf2.3/global_mixed_float16.h5",),
    "keras_archive": ("keras3.15/global_mixed_float16.keras",),
    "saved_model": ("tf2.5/global_mixed_float16",),
    "keras_directory": ("keras3.15/unpacked.keras.d",),
    "architecture": ("tf2.3/global_mixed_float16.json",),
    "sharded_weights": (
        "keras3.15/sharded.weights.json",
        "keras3.15/sharded_00000.weights.h5",
    ),
    "checkpoint": ("checkpoints/training.index", "checkpoints/training.data-00000-of-00001"),
    "keras_metadata": ("tf2.15/shared_layer/keras_metadata.pb",),
    "yaml_architecture": ("tf2.1/exp_mf16_fixed128_uncompiled.yaml",),
    "orbax": ("orbax/whole",),
    "tfjs": ("tfjs4.22/global_mixed_float16/model.json",),
}
"""Package of a format to the fixtures of one model: the model, and the files that belong to it."""

_OUTPUT: Final = "migrated.h5"

PROGRAM: Final = f"""
import policytool

model = {MODELS["hdf5"][0]!r}
for function in (policytool.inspect, policytool.audit):
    function(model).to_dict()
assert policytool.diff(model, {_OUTPUT!r}).to_dict()
assert policytool.explain("Unknown dtype policy: mixed_float16").to_dict()
assert all(hasattr(policytool, name) for name in policytool.__all__)
"""
"""
A program that calls functions on the HDF5 model and the file that the commands write. The commands
do not import the module of the functions.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command line of policytool."""

    arguments: tuple[str, ...]

    code: int
    """The exit code."""

    problem: Callable[[str], str | None]
    """Returns what is wrong with the output."""


def commands(version: str) -> Iterator[Command]:
    """Yield the commands; their working directory contains the fixtures of :data:`MODELS`."""
    models = tuple(name for name, *_ in MODELS.values())
    hdf5 = MODELS["hdf5"][0]

    def version_problem(text: str) -> str | None:
        return None if text.strip() == f"policytool {version}" else f"not version {version}"

    yield Command(arguments=("--version",), code=0, problem=version_problem)
    for arguments, code, problem in (
        (("inspect", *models, "--format", "json"), 0, inspect_problem),
        (("inspect", hdf5, "--format", "html=report.html"), 0, table_problem),
        (("audit", hdf5, "--format", "sarif"), 1, audit_problem),
        (("migrate", hdf5, "-o", _OUTPUT), 0, lambda _: None),
        (("inspect", _OUTPUT, "--format", "table"), 0, table_problem),
        (("explain", "PT101"), 0, lambda text: None if "PT101" in text else "no PT101"),
    ):
        yield Command(arguments=arguments, code=code, problem=problem)


def inspect_problem(text: str) -> str | None:
    """Return whether a JSON report lacks one of the models, or a model lacks its layers."""
    report = _json(text)
    paths = {model["path"] for model in report.get("models", ())}
    missing = [name for name, *_ in MODELS.values() if name not in paths]
    if missing or report["failures"]:
        return f"not in the report: {', '.join(missing)}; failures: {report.get('failures')}"
    return None


def audit_problem(text: str) -> str | None:
    """Return whether a SARIF report has no results."""
    runs = _json(text).get("runs", ())
    return None if any(run["results"] for run in runs) else "a SARIF report without results"


def table_problem(text: str) -> str | None:
    """Return whether a table lacks the layers of the model."""
    return None if "mixed_float16" in text else "a table without mixed_float16"


def _json(text: str) -> Mapping[str, Any]:
    try:
        result: Mapping[str, Any] = json.loads(text)
    except ValueError:
        return {}
    return result
