"""
The page of the limits: what each is and why, and what files made to be expensive cost, as ``make
bench`` measured it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.support.limits import BYTES, LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterator

MEASURED: Final = Path(__file__).with_name("hostile.json")


def limits_page() -> str:
    """Return the page as Markdown."""
    lines = [
        "# Limits",
        "",
        (
            "Written by `make docs` from `policytool/support/limits.py` and from what `make bench` "
            "measured. `policytool limits` lists the same at the terminal."
        ),
        "",
        (
            "Each command that reads models has `--limit NAME=VALUE` (`--limit json-bytes=512MiB`; "
            "several, if need be), each function of the Python API"
        ),
        (
            '`limits={"json-bytes": 2**29}`, and the environment `POLICYTOOL_LIMIT`. It raises or '
            "lowers a bound for that call, also in processes of"
        ),
        (
            "`--jobs`. A settings file has the key `limit` for it, which counts only in a file "
            "that "
            "`--config` names: one that was merely found sets no limit."
        ),
        (
            "What is beyond a limit ends with exit code 3 and one sentence, which says what was "
            "found, "
            "the limit, and the option that lets it through."
        ),
        "",
        "| limit | is | why | cannot be raised: it is |",
        "| --- | --- | --- | --- |",
    ]
    for limit in LIMITS.values():
        amount = limit.amount(limit.default) + ("" if limit.unit == BYTES else f" {limit.unit}")
        lines.append(f"| `{limit.name}` | {amount} | {limit.reason} | {limit.fixed} |")
    return "\n".join([*lines, "", *_costs(json.loads(MEASURED.read_text(encoding="utf-8"))), ""])


def _costs(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "## What files made to be expensive cost"
    yield ""
    yield (
        "Each is below 50 MB and made by `tests/bench/hostile.py`; a process of its own reads it. "
        "Seconds are those of a processor, and memory is the most"
    )
    yield (
        "that was resident, h5py and NumPy among it. The most of all: "
        f"{max(row['seconds'] for row in rows):.1f} s and {max(row['mib'] for row in rows)} MiB."
    )
    yield ""
    yield "| file | MB | command | exit code | s | MiB | what is said |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for row in rows:
        command = f"`{row['command']} {row['option']}`" if row["option"] else f"`{row['command']}`"
        cells = (
            row["what"],
            f"{row['bytes'] / 1e6:.1f}",
            command,
            row["code"],
            f"{row['seconds']:.1f}",
            row["mib"],
            row["said"].replace("|", "\\|"),
        )
        yield f"| {' | '.join(map(str, cells))} |"
