"""
The page of which release loads which fixture before and after ``migrate --target``: one cell for
each file and loader.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policytool.releases.releases import LOADERS
from policytool.reports._markdown import code, row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIXTURES: Final = Path(__file__).parent.parent / "fixtures"
CONVERSIONS: Final = FIXTURES / "conversions.json"
LOADS: Final = FIXTURES / "loads.json"

_WORDS: Final = {"loads": "load", "near": "near", "undecided": "open"}
_TITLE: Final = """# Compatibility of the fixtures before and after conversion

Written by `make docs` from `fixtures/loads.json` and `fixtures/conversions.json`. Each row is a
file that a release wrote, and each column a release that loads it: the original, and the result of
`policytool migrate --target` for that release.

- `ok`: the release loads the original and the result, with the same predictions and the same
  policies.
- **ok**: the release fails to load the original, but loads the result in the same way.
- `load` and **load**: the same for a file without weights or recorded inputs, whose predictions are
  not compared.
- `near` and **near**: predictions differ by more than 4 but at most 64 ulp, because the libraries
round in a different order in recurrent layers.
- `open` and **open**: the compatibility is unknown, and the file failed to load here (bytecode of
  another Python version, layers restored from traces).
- a number: the conversion is not supported, for the reason below. A number in parentheses, `(1)`:
the release loads the original.
"""


def matrix_page() -> str:
    """Return the page."""
    after, before = _outcomes(CONVERSIONS, "files"), _outcomes(LOADS, "loads")
    reasons: dict[str, int] = {}
    targets = [target for target in LOADERS if any(target in found for found in after.values())]
    rows = [row(("file", *targets)), row(["---"] * (len(targets) + 1))]
    tally: Counter[str] = Counter()
    for name, found in after.items():
        cells = [
            _cell(found.get(target), before.get(name, {}).get(target), reasons)
            for target in targets
        ]
        tally.update(
            _kind(found.get(target), before.get(name, {}).get(target)) for target in targets
        )
        rows.append(row((code(name), *cells)))
    told = [
        f"- {count} cells: {words}"
        for words, count in sorted(tally.items(), key=lambda item: -item[1])
        if words
    ]
    lines = [_TITLE, *told, "", *rows, "", "## Reasons", "", *_reasons(reasons, after)]
    return "\n".join(lines) + "\n"


def _outcomes(path: Path, key: str) -> dict[str, dict[str, str]]:
    """Return each file's outcome by loader."""
    recorded: Mapping[str, Mapping[str, str]] = json.loads(path.read_text(encoding="utf-8"))[key]
    return {
        name: {
            loader: text
            for text, loaders in found.items()
            if isinstance(loaders, str)
            for loader in loaders.split()
        }
        for name, found in recorded.items()
    }


def _code(text: str) -> str:
    return text.removeprefix("refused ").partition(":")[0]


def _cell(after: str | None, before: str | None, reasons: dict[str, int]) -> str:
    if after is None:
        return ""
    if after.startswith("refused"):
        number = str(reasons.setdefault(_code(after), len(reasons) + 1))
        return f"({number})" if before == "ok" else number
    if after.startswith("failed"):
        return "**failed**"
    word = _WORDS.get(after.partition(":")[0], "ok")
    return word if before == "ok" else f"**{word}**"


def _kind(after: str | None, before: str | None) -> str:
    if after is None:
        return ""
    was = "loaded before" if before == "ok" else "failed to load before"
    now = (
        "not converted"
        if after.startswith("refused")
        else "failing"
        if after.startswith("failed")
        else "loaded after"
    )
    return f"{was}, {now}"


def _reasons(reasons: Mapping[str, int], after: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield each reason with how often it stands there, and one file's words for it."""
    texts = [
        (name, target, text)
        for name, found in after.items()
        for target, text in found.items()
        if text.startswith("refused")
    ]
    for reason, number in reasons.items():
        said = [(name, target, text) for name, target, text in texts if _code(text) == reason]
        name, target, text = said[0]
        yield (
            f"{number}. {code(reason)}, {len(said)} cells, such as {code(name)} for {target}: "
            f"{text.partition(': ')[2]}"
        )
