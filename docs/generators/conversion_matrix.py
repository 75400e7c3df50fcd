"""
The page of which release loads which fixture before and after ``migrate --target``: one cell for
each file and loader.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policytool.releases.releases import LOADERS, release_name
from policytool.reports.markdown import code, row

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FIXTURES: Final = Path(__file__).parent.parent.parent / "fixtures"
CONVERSIONS: Final = FIXTURES / "conversions.json"
LOADS: Final = FIXTURES / "loads.json"

_WORDS: Final = {"loads": "load", "near": "near", "undecided": "open"}
_TITLE: Final = """# Compatibility of the fixtures before and after conversion

`make docs` generates this page from `fixtures/loads.json` and `fixtures/conversions.json`. Each row
is a fixture, and each column is a release. Each cell shows whether the release loads the original
file and the converted file that `policytool migrate --target` writes for this release.

- `ok`: the release loads both files, with the same predictions and policies.
- **ok**: the release fails to load the original, but loads the converted file with the same
  predictions and policies.
- `load` and **load**: the same as `ok` and **ok**, but predictions are not compared, because the
  fixture has no weights or no recorded inputs.
- `near` and **near**: the predictions differ by more than 4 but at most 64
  [ulp](../reference/glossary.md), because recurrent layers round in a different order in the two
  libraries.
- `open` and **open**: the compatibility is unknown, and the file failed to load in this test, for
  example because it contains bytecode from another Python version or layers restored from traces.
- A number: the conversion is not supported; the list below the table gives the reason.
- A number in parentheses, such as `(1)`: the conversion is not supported, but the release loads the
  original.
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
    was = "the original loads" if before == "ok" else "the original fails to load"
    now = (
        "the conversion is not supported"
        if after.startswith("refused")
        else "the converted file fails to load"
        if after.startswith("failed")
        else "the converted file loads"
    )
    return f"{was}, and {now}"


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
            f"{number}. {code(reason)} ({len(said)} cells), for example {code(name)} for "
            f"{release_name(target)}: {text.partition(': ')[2]}"
        )
