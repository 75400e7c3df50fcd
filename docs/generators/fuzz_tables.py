"""The page about fuzzing, from the record of its runs and the list of what it found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent.parent
RECORD: Final = ROOT / "tests" / "fuzz" / "record.json"
FINDINGS: Final = ROOT / "tests" / "fuzz" / "findings.json"
_ADDED: Final = ("executions", "seconds", "crashes", "hangs", "limits", "traced")
_MOST: Final = ("slowest", "memory")

KINDS: Final = {
    "changed": "valid files with modified structure, in process",
    "drawn": "models generated and modified by Hypothesis, in process",
    "hostile": "generated hostile and harmless models, for the allow-list and `audit`, in process",
    "loaded": (
        "models accepted by the allow-list, loaded with TensorFlow 2.21, tf_keras 2.21 and Keras "
        "3.15 under strace"
    ),
    "process": "end-to-end runs of `python -m policytool`",
    "copied": "end-to-end runs in forks of a process that has loaded the modules",
}

Row = dict[str, Any]


def fuzzing_page() -> str:
    """Return ``docs/evidence/fuzzing.md``."""
    rows: list[Row] = json.loads(RECORD.read_text(encoding="utf-8"))
    lines = [
        "# Fuzzing",
        "",
        (
            "`make docs` generates this page from `tests/fuzz/record.json` and "
            "`tests/fuzz/findings.json`."
        ),
        "`make fuzz` adds each run to the record.",
        "",
        (
            "The fuzzer modifies the structure of valid files in every format: keys, classes, "
            "path-like names, policies, numbers and nesting in configs;"
        ),
        (
            "fields of protobuf messages, entries of checkpoint tables and archive members, with "
            "corrected lengths and checksums; and single bytes."
        ),
        (
            "Each run executes the command line in the fuzzer process, calls only a "
            "reader, or starts the tool as a separate process. The commands are `inspect`"
        ),
        (
            "in every format, `audit` with every target, `migrate` with every policy and target, "
            "with and without writing, and `diff`."
        ),
        "",
        (
            "Other targets generate whole files: models that contain and repeatedly call other "
            "models (`nests`), HDF5 links between groups in every arrangement (`links`),"
        ),
        (
            "and settings with patterns, found in the directory of a model (`found-settings`). "
            "Files in two formats at once must be rejected, and archives that resemble them "
            "accepted (`polyglots`)."
        ),
        "",
        "Every run must satisfy these conditions:",
        "",
        "- The exit code is 0, 1, 3 or 4. For modified settings, plans and baselines, it may be 2.",
        (
            "- stderr contains complete messages, no traceback, and no terminal control "
            "characters. JSON reports are valid JSON."
        ),
        "- The run uses at most 30 CPU seconds and 1 GiB of memory.",
        "- Only the output changes.",
        (
            "- Traced end-to-end runs (`strace -f -e trace=file,network,process`) start no "
            "process, use no network address, and open only the input, the output,"
        ),
        "  and files of the interpreter and the system.",
        "",
        (
            "A separate grammar generates models to test the allow-list of `check`, `--verify` "
            "and `--retrace`. It uses every class and argument that any release writes. Wherever"
        ),
        (
            "Keras looks up a name, the grammar inserts functions, classes, modules, paths and "
            "bytecode that are not on any list. It also generates SavedModels with every op"
        ),
        (
            "that accesses something outside the graph, and every way to write a path. A model "
            "with a hostile part must be rejected with one message and reported"
        ),
        (
            "by `audit`; a harmless model must be allowed. The libraries load and call the "
            "allowed models, including unusual ones, under strace, next to a file that they"
        ),
        (
            "must not open and a directory that they must not write to. They may open files, "
            "start processes and open connections only if they do the same for every other model."
        ),
        "",
        "## Totals",
        "",
        (
            "| kind | executions | hours | crashes | hangs | limit exceeded | slowest (s) | "
            "memory (MiB) |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            _summary(about, [one for one in rows if one["kind"] == kind])
            for kind, about in KINDS.items()
        ),
        _summary("all", rows),
        "",
        *_about_processes(rows),
        (
            "The tables count each crash and hang, including those whose causes were fixed later. "
            "The Findings section lists these causes, and the causes found in earlier runs."
        ),
        "",
        (
            "When HDF5 files are read in the fuzzer process, the only memory limit is an "
            "address space of 1.5 GiB. Files with damaged heaps therefore count as"
        ),
        (
            "damaged files if the HDF5 library allocates too much memory, and as hangs if it does "
            "not return. The command line limits both (`library-bytes` and `call-seconds` in"
        ),
        "[limits.md](limits.md)), so end-to-end runs satisfy the conditions.",
        "",
        "## By target",
        "",
        (
            "| target | executions | hours | crashes | hangs | limit exceeded | slowest (s) | "
            "memory (MiB) |"
        ),
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *(
            _summary(target, [one for one in rows if one["target"] == target])
            for target in sorted({one["target"] for one in rows})
        ),
        "",
        "## Findings",
        "",
        "| found by | problem | current behavior | test |",
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
