"""
The page of the limits: what each is and why, and what files made to be expensive cost, as ``make
bench`` measured it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.support.limits import BYTES, LIMITS

if TYPE_CHECKING:
    from collections.abc import Iterator

MEASURED: Final = Path(__file__).parent.parent / "evidence" / "hostile.json"


def limits_page() -> str:
    """Return the page as Markdown."""
    lines = [
        "# Limits",
        "",
        (
            "`make docs` generates this page from `policytool/support/limits.py` and the "
            "measurements of `make bench`. `policytool explain limits` prints the "
            "limits in the terminal."
        ),
        "",
        (
            "To raise or lower a limit for one call, use the option `--limit NAME=VALUE` of any "
            "command that reads models (`--limit json-bytes=512MiB`, repeatable),"
        ),
        (
            'the argument `limit={"json-bytes": 2**29}` of the Python API, or the environment '
            "variable `POLICYTOOL_LIMIT`. The limit also applies to the processes that `--jobs`"
        ),
        (
            "starts. The settings key `limit` works only in a file specified with "
            "`--config`: a settings file found automatically cannot set limits."
        ),
        (
            "A file that exceeds a limit causes an error with exit code 3. The message shows "
            "the measured value, the limit, and the option that raises the limit."
        ),
        "",
        "| limit | default | reason | cannot be raised because it is |",
        "| --- | --- | --- | --- |",
    ]
    for limit in LIMITS.values():
        amount = limit.amount(limit.default) + ("" if limit.unit == BYTES else f" {limit.unit}")
        lines.append(f"| `{limit.name}` | {amount} | {limit.reason} | {limit.fixed} |")
    return "\n".join([*lines, "", *_costs(json.loads(MEASURED.read_text(encoding="utf-8"))), ""])


def _costs(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield "## The cost of hostile files"
    yield ""
    yield (
        "`tests/bench/hostile.py` creates files that are smaller than 50 MB and expensive to "
        "read, and reads each in a separate process. Times are CPU seconds, and memory is the peak"
    )
    yield (
        "resident memory, including h5py and NumPy. Maximum of all files: "
        f"{max(row['seconds'] for row in rows):.1f} s and {max(row['mib'] for row in rows)} MiB."
    )
    yield ""
    yield "| file | MB | command | exit code | s | MiB | exceeded limit |"
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
            _exceeded_limit(row["said"]),
        )
        yield f"| {' | '.join(map(str, cells))} |"


def _exceeded_limit(said: str) -> str:
    """Return the limit that a message names; an empty text if it names none."""
    names = "|".join(sorted(LIMITS, key=len, reverse=True))
    match = re.search(rf"\b(?:of|the) ({names})(?![\w-])", said)
    return f"`{match[1]}`" if match else ""
