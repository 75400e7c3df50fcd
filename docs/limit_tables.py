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
            "Written by `make docs` from `policytool/support/limits.py` and the measurements of "
            "`make bench`. `policytool limits` lists the same in the terminal."
        ),
        "",
        (
            "Each command that reads models has `--limit NAME=VALUE` (`--limit "
            "json-bytes=512MiB`, repeatable), each function of the Python API"
        ),
        (
            '`limits={"json-bytes": 2**29}`, and the environment variable `POLICYTOOL_LIMIT`. It '
            "raises or lowers a limit for that call, also in the processes of"
        ),
        (
            "`--jobs`. A settings file has the key `limit` for it, which works only in a file "
            "set with `--config`: an automatically found file cannot set limits."
        ),
        (
            "A file that exceeds a limit causes an error with exit code 3. The message shows "
            "the measured value, the limit, and the option that raises it."
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
        "Each file is smaller than 50 MB, was created by `tests/bench/hostile.py` and is read "
        "in a separate process. Times are CPU seconds, and memory is the peak"
    )
    yield (
        "resident memory, including h5py and NumPy. Maximum of all files: "
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
