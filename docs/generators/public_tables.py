"""The page about public model files, from the record of ``fixtures/public_files.py``."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from policytool.releases.releases import LOADERS, release_name
from policytool.reports.markdown import row

RECORD: Final = Path(__file__).parent.parent.parent / "fixtures" / "public_files.json"

_TITLE: Final = """# Public model files

`make docs` generates this page from `fixtures/public_files.json`, which `fixtures/public_files.py`
writes. The record has the address, the license and the SHA-256 hash of model files in public
repositories on GitHub. The files are not part of this repository, and none of them was used in its
tests before. For each file and release, the page compares the verdict of `policytool inspect` with
the result of `load_model` (`compile=False`) without custom classes. Safe mode stays on, and a file
that stores Python bytecode is not loaded to the end: for these files, only a verdict of *unknown*
or *fails* is possible.

The last columns show the results of `migrate --target keras3` and `--target tf_keras`. *Same*: the
target loads the written file, and its predictions for random inputs differ by at most 1e-5 of the
largest output. *Same (weights)* needs the option `--allow weight-rewrite`. *Loads*: the file has no
weights, or no release can run the original. *Unchanged*: there is nothing to convert. *Custom
class*, *bytecode*: the target needs code that the file lacks, or that was not run. *Not converted*:
`migrate` reports a problem and writes nothing.
"""

_KINDS: Final = {"loads": "loads", "incompatible": "fails", "unknown": "unknown"}


def public_page() -> str:
    """Return the page."""
    files = json.loads(RECORD.read_text(encoding="utf-8"))["files"]
    lines = [_TITLE, *_counts(files.values()), "", *_table(files)]
    return "\n".join([*lines, ""])


def _pairs(record: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the verdict and the result of each release."""
    verdicts, results = (
        {name: kind for kind, names in record.get(key, {}).items() for name in names.split()}
        for key in ("verdicts", "results")
    )
    return {name: (_KINDS[verdicts[name]], results[name]) for name in LOADERS if name in verdicts}


def _counts(records: Any) -> list[str]:  # noqa: ANN401  # JSON
    counts = Counter(pair for record in records for pair in _pairs(record).values())
    results = ("ok", "fails", "bytecode")
    names = ("verdict", "release loads the file", "release fails", "not run: bytecode")
    rows = [row((kind, *(str(counts[kind, name]) for name in results))) for kind in _KINDS.values()]
    return [row(names), row("---" for _ in names), *rows]


def _table(files: dict[str, Any]) -> list[str]:
    names = (
        "file",
        "license",
        "SHA-256",
        "format",
        "written by",
        "loads in",
        "wrong verdicts",
        "unknown",
        "Keras 3.15",
        "tf_keras 2.21",
    )
    return [row(names), row("---" for _ in names), *(_file(*item) for item in files.items())]


def _file(name: str, record: dict[str, Any]) -> str:
    owner, repository, path = name.split("/", 2)
    address = f"https://github.com/{owner}/{repository}/tree/{record['commit']}/{quote(path)}"
    pairs = _pairs(record)
    wrong = {("loads", "fails"), ("loads", "bytecode"), ("fails", "ok")}
    return row(
        (
            f"[{owner}/{repository}: `{path}`]({address})",
            record["licence"] or "none stated",
            f"`{record['sha256'][:16]}`",
            record["format"],
            record["written_by"] or "",
            _releases(key for key, (_, result) in pairs.items() if result == "ok"),
            _releases(key for key, pair in pairs.items() if pair in wrong),
            str(sum(verdict == "unknown" for verdict, _ in pairs.values()) or ""),
            *(_conversion(record["converted"][key]) for key in ("keras3.15", "tf_keras2.21")),
        )
    )


def _conversion(outcome: str) -> str:
    if outcome.startswith("refused"):
        return "not converted"
    return outcome.replace(" with --allow weight-rewrite", " (weights)")


def _releases(names: Any) -> str:  # noqa: ANN401  # an iterator of names
    return ", ".join(map(release_name, names))
