"""The page about the shapes of variables, from the comparison with the layers of each release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from policytool.releases.releases import release_name
from policytool.reports.markdown import row

RECORD: Final = Path(__file__).parent.parent.parent / "fixtures" / "variable_shapes.json"

_TITLE: Final = """# Shapes of variables

`make docs` generates this page from `fixtures/variable_shapes.json`, which
`fixtures/layer_variables.py` writes. policytool computes the shape of each variable of a layer from
its arguments and the shapes of its inputs, with the expressions in
`policytool/releases/data/layer_classes.json`. The script creates layers of each class that
`fixtures/writer/layer_cases.py` has a case for, changes the numbers and booleans in their arguments
and the sizes of their inputs, and compares the shapes of their variables with the results.

The expressions leave some sizes open, such as the length of a table. The comparison does not
include wrappers, whose variables are those of the layer that they contain, layers with LoRA, and
layers that the release fails to save.
"""


def variables_page() -> str:
    """Return the page."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))["releases"]
    names = ("release", "layers", "variables", "with an open size", "not compared", "wrong shapes")
    lines = [_TITLE, row(names), row("---" for _ in names)]
    for release, counts in record.items():
        numbers = (counts[key] for key in ("layers", "variables", "open", "left_out"))
        lines.append(row((release_name(release), *map(str, numbers), str(len(counts["wrong"])))))
    return "\n".join([*lines, ""])
