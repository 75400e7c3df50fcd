"""What came of a model: the word of an outcome, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SAME: Final = {2.0**-53: 1e-12, 2.0**-24: 1e-6}
"""
The difference, of the largest magnitude of the output, below which float64 and float32 are `same`.
"""

_NEAR: Final = 16
"""How many times as far as the `same` model, with weights off by one rounding, is `near`."""

_CONSTANTS: Final = 1e-7
"""The difference that the note ``float32-constant`` tells of a model in float64."""

_UNCAST: Final = 1e-6
"""That of ``uncast-input``."""

_NORMALIZED: Final = 2.0**-4
"""That of ``normalized-in-half``, after a few layers."""

GOOD: Final = frozenset({"same", "near"})
BAD: Final = (
    *("DIFFERS", "DOES NOT LOAD", "DOES NOT LOAD (compiled)", "DTYPES", "STATE", "ROUND TRIP"),
    *("NO WAY BACK", "CRASH", "VERDICT"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of one model."""

    seed: int
    word: str
    """``same``, ``near``, ``refused: code``, ``reference failed``, or one of ``BAD``."""

    reason: str = ""
    rewritten: bool = False
    """Whether it is written with ``--allow weight-rewrite`` only."""

    own: str = ""
    """Why the model's own library does not load the file as it was."""

    container: str = ""
    family: str = ""


def arrays(path: Path) -> dict[str, Any]:
    """Return the arrays in a file of a child."""
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


def judge_predictions(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    truth: Mapping[str, Any],
    notes: frozenset[str] = frozenset(),
) -> tuple[str, str]:
    """
    Return the word for predictions before and after, and how far they are off.

    :param notes: the codes of what the conversion told
    """
    if len(before) != len(after):
        return "DIFFERS", f"{len(before)} outputs became {len(after)}"
    names = before if set(before) == set(after) else dict(zip(before, after, strict=True))
    same = SAME.get(truth["eps"], 16 * truth["eps"])
    near = max(_NEAR * truth["noise"], 16 * same if truth["eps"] in SAME else same)
    if "float32-constant" in notes:
        near = max(near, _CONSTANTS)
    if "uncast-input" in notes:
        near = max(near, _UNCAST)
    if "normalized-in-half" in notes:
        near = max(near, _NORMALIZED)
    worst = 0.0
    for name in names:
        first = before[name]
        second = after[name if name in after else names[name]]
        if first.shape != second.shape:
            return "DIFFERS", f"{name}: shape {first.shape} became {second.shape}"
        if first.dtype.kind != "f":
            if not np.array_equal(first, second):
                return "DIFFERS", f"{name}: other {first.dtype} values"
            continue
        finite = np.isfinite(first)
        if not np.array_equal(
            first[~finite], second[~finite], equal_nan=True
        ) or not np.array_equal(finite, np.isfinite(second)):
            return "DIFFERS", f"{name}: NaN or infinity elsewhere"
        largest = np.abs(first[finite]).max(initial=0.0)
        gap = np.abs(first[finite].astype("float64") - second[finite]).max(initial=0.0)
        worst = max(worst, float(gap / max(largest, 1e-30)))
    text = f"{worst:.1e} of the largest output (noise {truth['noise']:.1e})"
    return ("same" if worst <= same else "near" if worst <= near else "DIFFERS"), text


def differing_dtypes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return the first layers of both models that have other dtypes; nothing if none has."""
    actual = [
        f"{name} {before[name]} became {after[name]}"
        for name in before
        if name in after and before[name] != after[name]
    ]
    return "; ".join(actual[:3])


def judge_state(before: list[Any], after: list[Any], rounding: float) -> str:
    """
    Return what is wrong with the variables of an optimizer; nothing if all are kept.

    Slots have another order in the other library, so each array must occur.

    :param rounding: how far values may be off, relative and, for float16, absolute
    """
    tiny = rounding * 2.0**-16
    expected = [item for item in before if item.size > 1 and np.any(item)]
    kept = [
        any(
            item.shape == other.shape
            and np.allclose(item, other, rtol=rounding, atol=tiny, equal_nan=True)
            for other in after
        )
        for item in expected
    ]
    lost = len(kept) - sum(kept)
    return f"{lost} of {len(kept)} variables of the optimizer are lost unreported" if lost else ""
