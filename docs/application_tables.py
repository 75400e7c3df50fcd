"""The page about the models of keras.applications, from what converting each of them came to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from policytool.reports._markdown import code, row
from policytool.reports._words import generation_words

RECORD: Final = Path(__file__).parent.parent / "fixtures" / "applications.json"
_NO_MODEL: Final = "model"
_OWN: Final = "own"
_CALMED: Final = "calmed"
_CONTAINERS: Final = ("h5", "keras")

_TITLE: Final = """# The models of keras.applications

Written by `make docs` from `fixtures/applications.json`, which `fixtures/applications.py` writes.
Each model has random weights, images of 96 x 96 pixels and 10 classes without a last activation.
Its batch normalisations have small factors and the statistics of the inputs, as training would give
them: with others the deepest models make of a rounding a difference as large as their output. It is
saved as HDF5 and as `.keras`, and converted for the other library from each container that its own
release reads back with the same predictions; then the other library predicts with the result.

Cells are differences of the logits in ulp of the largest. *Own* is how far the release is from
itself where oneDNN computes in another order, which is what the model makes of roundings.
ResNetRS420 is deeper than Python's recursion limit lets a loader walk: its own function raises that
limit, and `sys.setrecursionlimit` does before it is loaded. A number in brackets is a reason below.

Those with a star have the weights that they are made with, and were given inputs from -1 to 1:
where the model brings pixels to a scale itself, little of such inputs is left, and roundings count
for more; and *own* says nothing of those. The normalisations of Inception have no factors to make
small.
"""


def applications_page() -> str:
    """Return the page."""
    record: dict[str, dict[str, dict[str, str]]] = json.loads(RECORD.read_text(encoding="utf-8"))
    lines = [_TITLE]
    for release, other in zip(record, reversed(record), strict=True):
        reasons: dict[str, int] = {}
        found = {name: cells for name, cells in record[release].items() if _NO_MODEL not in cells}
        rows = [
            row(
                (
                    _name(name, cells),
                    *(_cell(cells.get(key, ""), reasons) for key in (*_CONTAINERS, _OWN)),
                )
            )
            for name, cells in found.items()
        ]
        without = sorted(name for name, cells in record[release].items() if _NO_MODEL in cells)
        lines += [f"## From {release} to {generation_words(other)}", ""]
        lines += [
            row(("model", "HDF5", "`.keras`", "own")),
            row(("---", "---:", "---:", "---:")),
            *rows,
            "",
        ]
        lines += [f"{number}. {text}" for text, number in reasons.items()]
        if without:
            lines += ["", f"{release} has no {', '.join(without)}."]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _name(name: str, cells: dict[str, str]) -> str:
    """Return a model's name, with a star where its weights were not calmed."""
    measured = any(text.endswith("ulp") for text in cells.values())
    return f"{code(name)} *" if measured and _CALMED not in cells else code(name)


def _cell(text: str, reasons: dict[str, int]) -> str:
    """Return a difference, or the number of the reason why there is none."""
    number, _, unit = text.partition(" ")
    if not text:
        return ""
    if unit == "ulp":
        return f"{float(number):,.1f}"
    said = (
        text
        if text.startswith(("refused", "failed", "not tried"))
        else f"its own release does not read it back: {text}"
    )
    # The layer that is named differs from model to model.
    words = said.split(": ")
    kind = ": ".join(
        word if "/" not in word else word.partition("(")[2].replace(") is", " is", 1)
        for word in words
    )
    return f"({reasons.setdefault(kind, len(reasons) + 1)})"
