"""The page about the models of keras.applications, from what converting each of them came to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from policytool.reports.markdown import code, row
from policytool.reports.words import generation_words

RECORD: Final = Path(__file__).parent.parent.parent / "fixtures" / "applications.json"
_NO_MODEL: Final = "model"
_OWN: Final = "own"
_CALMED: Final = "calmed"
_CONTAINERS: Final = ("h5", "keras")

_TITLE: Final = """# The models of keras.applications

`make docs` generates this page from `fixtures/applications.json`, which `fixtures/applications.py`
writes. Each model has random weights, inputs of 96 x 96 pixels, 10 classes, and no final
activation. As in a trained model, batch normalization layers use small scale factors and the
statistics of their inputs; otherwise, rounding errors in the deepest models grow as large as the
outputs. Each model is saved as HDF5 and as `.keras`. If the release that saved a file can load it
again with the same predictions, policytool converts the file for the other library, which loads the
result and makes predictions.

The cells show the largest difference between the logits, in [ulp](../reference/glossary.md) of the
largest logit. The *own* column shows the effect of rounding: the difference within one release when
oneDNN computes in a different order. Loading ResNetRS420 exceeds Python's recursion limit, so the
script raises the limit with `sys.setrecursionlimit` before it loads the model; the constructor of
the model does the same. A number in parentheses refers to a reason below the table.

Models marked with a star use their default initial weights and inputs from -1 to 1. If one of them
rescales pixels itself, the inputs become very small and rounding has a larger effect. The column
*own* does not apply to these models. The normalization layers in the Inception models have no scale
factors.
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
        lines += [f"## From {generation_words(release)} to {generation_words(other)}", ""]
        lines += [
            row(("model", "HDF5", "`.keras`", "own")),
            row(("---", "---:", "---:", "---:")),
            *rows,
            "",
        ]
        lines += [f"{number}. {text}" for text, number in reasons.items()]
        if without:
            named = ", ".join(without)
            lines += ["", f"{generation_words(release)} does not have these models: {named}."]
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
        else f"the release that saved the file fails to load it: {text}"
    )
    # The layer that is named differs from model to model.
    words = said.split(": ")
    kind = ": ".join(
        word if "/" not in word else word.partition("(")[2].replace(") is", " is", 1)
        for word in words
    )
    return f"({reasons.setdefault(kind, len(reasons) + 1)})"
