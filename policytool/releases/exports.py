"""
What Keras' own exporters do with layers, activations and operations: ``data/exports.json``, which
``fixtures/exports.py`` measures with the exporters of the newest Keras and the runtimes of their
files.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from policytool.releases import data
from policytool.releases.dtypes import is_float
from policytool.support.grouping import group_pairs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Export(Struct, frozen=True, kw_only=True):
    """The outcome of exporting a layer."""

    fails: str | None
    """The stage that fails: ``export``, ``run`` or ``outputs``; None if none does."""

    message: str
    """The error, or the difference of the outputs."""

    weights: tuple[str, ...]
    """The dtypes of the constants in the exported file; empty if it fails before."""


def export(
    exporter: str, policy: str, class_name: str, config: Mapping[str, object]
) -> Export | None:
    """
    Return what an exporter does with a layer; None if its class, its policy, or the case that fits
    its arguments was not measured.
    """
    names = [
        case
        for case, arguments in _cases().get(class_name, ())
        if all(_is_alike(config.get(key), value) for key, value in arguments.items())
    ]
    found = [_index(exporter, policy).get(name) for name in names or [class_name]]
    return next((one for one in found if one is None or one.fails), found[0])


def activation_export(exporter: str, dtype: str, name: str) -> Export | None:
    """Return what an exporter does with an activation function; None if it was not measured."""
    outcome = _index(exporter, dtype).get(f"activations.{name}")
    message = f"activation {name}: {outcome.message}" if outcome else ""
    return replace(outcome, message=message) if outcome and outcome.fails else outcome


def operation_export(
    exporter: str, class_name: str, dtypes: Sequence[str], *, has_constants: bool = False
) -> Export | None:
    """
    Return what an exporter does with an operation on tensors of one dtype and conditions; None if
    the operation or the dtype was not measured, or for several dtypes.

    :param has_constants: whether the call contains tensors with values, which some exporters turn
        into inputs of the file
    """
    values = [dtype for dtype in dtypes if dtype != "bool"] or ["bool"]
    if not dtypes or len(values) != 1:
        return None
    name, (dtype,) = f"ops.{class_name}", values
    outcomes = _index(exporter, dtype if is_float(dtype) else "float32")
    own = outcomes.get(name if is_float(dtype) else f"{name}[{dtype}]")
    constant = outcomes.get("ops.Add[constant]") if has_constants else None
    return constant if constant is not None and constant.fails and own is not None else own


def _is_alike(value: object, measured: object) -> bool:
    """Return whether an argument is the measured one; numbers above 1 stand for each other."""
    is_number = isinstance(value, int) and type(value) is type(measured) is int
    return value == measured or (is_number and value != 1)


def versions() -> Mapping[str, str]:
    """Return the versions of the packages that were measured."""
    found: Mapping[str, str] = data.read("exports")["versions"]
    return found


def policies(exporter: str) -> Mapping[str, Sequence[Mapping[str, Any]]]:
    """Return the outcomes of an exporter by policy, as the data has them."""
    found: Mapping[str, Sequence[Mapping[str, Any]]] = data.read("exports")["exports"][exporter]
    return found


@cache
def _cases() -> Mapping[str, Sequence[tuple[str, Mapping[str, object]]]]:
    """Return the cases of each class that were measured with arguments, and these arguments."""
    cases = data.read("exports")["arguments"].items()
    return group_pairs((case.partition("[")[0], (case, arguments)) for case, arguments in cases)


@cache
def _index(exporter: str, policy: str) -> Mapping[str, Export]:
    """Return the outcomes by case. Look-ups must be fast, because files name the classes."""
    return {
        case: Export(
            fails=row.get("fails"),
            message=row.get("message", ""),
            weights=tuple(row.get("weights", ())),
        )
        for row in policies(exporter).get(policy, ())
        for case in row["cases"]
    }
