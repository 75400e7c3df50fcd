"""The page about fuzzing, from the record of its runs and the list of what it found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
RECORD: Final = ROOT / "tests" / "fuzz" / "record.json"
FINDINGS: Final = ROOT / "tests" / "fuzz" / "findings.json"
_ADDED: Final = ("executions", "seconds", "crashes", "hangs", "limits", "traced")
_MOST: Final = ("slowest", "memory")

KINDS: Final = {
    "changed": "valid files with structural changes, in process",
    "guided": "the same, and bytes, led by coverage (atheris), in process",
    "drawn": "models drawn and changed by Hypothesis, in process",
    "hostile": (
        "models with something hostile in them, and sound ones, before the guard and `audit`, in "
        "process"
    ),
    "loaded": (
        "models that the guard lets through, loaded by TensorFlow 2.21, tf_keras 2.21 and Keras "
        "3.15 under strace"
    ),
    "process": "whole runs, `python -m policytool` each",
    "copied": "whole runs, each in a process that is a copy of one with the modules loaded",
}

Row = dict[str, Any]


def fuzzing_page() -> str:
    """Return ``docs/fuzzing.md``."""
    rows: list[Row] = json.loads(RECORD.read_text(encoding="utf-8"))
    lines = [
        "# What was fuzzed",
        "",
        (
            "Written by `make docs` from `tests/fuzz/record.json` and `tests/fuzz/findings.json`; "
            "`make fuzz` adds its own run to the record."
        ),
        "",
        (
            "Valid files of every format get structural changes: keys, classes, escaping "
            "names, policies, numbers, nesting in configs;"
        ),
        (
            "fields of protobuf messages, entries of a checkpoint's table, members of archives, "
            "with corrected lengths and checksums around them; and single bytes."
        ),
        (
            "Each run executes the command line in the fuzzer's own process (inspect in every "
            "format, audit with every target, migrate to every policy and target,"
        ),
        ("shown and written, diff), or only the reader, or the tool as a separate process."),
        "",
        (
            "The contract: exit code 0, 1, 3 or 4, and 2 for settings, plans and baselines; "
            "sentences on stderr, no traceback, no terminal control characters;"
        ),
        (
            "JSON reports that are JSON; at most 30 CPU seconds and 1 GiB; no changes except "
            "the output. Some end-to-end runs are traced"
        ),
        (
            "(`strace -f -e trace=file,network,process`): no process, no network address, and "
            "no files except the input, the output, and those of the interpreter and the system."
        ),
        "",
        (
            "Models for the guard of `check`, `--verify` and `--retrace` are drawn from "
            "a separate grammar: every class and argument that releases write, with"
        ),
        (
            "functions, classes, modules, paths and bytecode that are on no list in "
            "every place where a name is looked up, and SavedModels with every op"
        ),
        (
            "that leads out of a graph and every way to write a path. A model with a hostile "
            "part must be rejected with one message and reported by `audit`,"
        ),
        (
            "and a sound one allowed. Hostile and odd models that are allowed are loaded and "
            "called by "
            "the libraries under strace, next to a file that they must not"
        ),
        (
            "open and a directory that they must not write to: nothing may be opened, started "
            "or connected to except what the libraries open themselves."
        ),
        "",
        "## Totals",
        "",
        (
            "| kind | executions | hours | crashes | hangs | beyond a bound | slowest, s | memory, "
            "MB "
            "|"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            _summary(f"{kind}: {about}", [one for one in rows if one["kind"] == kind])
            for kind, about in KINDS.items()
        ),
        _summary("all", rows),
        "",
        *_about_processes(rows),
        "Crashes and hangs are counted per run, before their causes were fixed.",
        "The findings list each of them, and earlier ones.",
        "",
        (
            "HDF5 that is read in the fuzzer's own process is limited only by 1.5 GiB of "
            "address space: damaged heaps for which the library allocates memory"
        ),
        (
            "without end or loops endlessly reach this limit and count as damage and as hangs. "
            "The command limits both (`library-bytes` and `call-seconds` in"
        ),
        "[limits.md](limits.md)), so end-to-end runs stay within the contract.",
        "",
        "## By target",
        "",
        (
            "| target | executions | hours | crashes | hangs | beyond a bound | slowest, s | "
            "memory, "
            "MB |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            _summary(target, [one for one in rows if one["target"] == target])
            for target in sorted({one["target"] for one in rows})
        ),
        "",
        "## Findings",
        "",
        "| found by | what happened | since then | test |",
        "| --- | --- | --- | --- |",
        *(
            f"| {one['by']} | {one['was']} | {one['is']} | `{one['test']}` |"
            for one in json.loads(FINDINGS.read_text(encoding="utf-8"))
        ),
        "",
    ]
    return "\n".join(lines)


def _about_processes(rows: list[Row]) -> list[str]:
    traced = sum(one["traced"] for one in rows)
    return [f"{traced} end-to-end runs were traced.", ""] if traced else []


def _summary(title: str, rows: list[Row]) -> str:
    sums = {key: sum(one[key] for one in rows) for key in _ADDED}
    most = {key: max((one[key] for one in rows), default=0) for key in _MOST}
    cells = (
        title,
        f"{sums['executions']:,}",
        f"{sums['seconds'] / 3600:.1f}",
        sums["crashes"],
        sums["hangs"],
        f"{sums['limits']:,}",
    )
    return (
        "| "
        + " | ".join(map(str, (*cells, f"{most['slowest']:.1f}", round(most["memory"] / 2**20))))
        + " |"
    )
