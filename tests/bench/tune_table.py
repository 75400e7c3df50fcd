"""
Tune the models of ``tune_models.py``, and compare the searches with those of an earlier revision:
``python -m tests.bench.tune_table DIRECTORY PYTHON [--before TREE] [--write FILE]``.

``DIRECTORY`` has a directory of models for each library. Each model is tuned twice: for
mixed_float16, where a few layers overflow, and for mixed_bfloat16 with a tolerance of 60% of the
error that the model has with all layers converted, so that many small errors count. Each written
model is then checked on inputs that no search used. ``TREE`` is a checkout of the earlier revision;
without it, only the search of this tree runs. ``--results FILE`` keeps the rows, so that a run can
be repeated until all models are done.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import policytool
from policytool.numerics.check_results.verdicts import Answer
from tests.bench.sections import write_section
from tests.bench.tune_process import EARLIER, ROOT, run_tune

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    Row = dict[str, Any]

MODELS: Final = {
    "tagger": "LSTM tagger",
    "transformer": "transformer encoder",
    "mobilenetv3small": "MobileNetV3-Small",
    "resnet50": "ResNet50",
    "efficientnetv2b0": "EfficientNetV2-B0",
}
LIBRARIES: Final = {"keras": "Keras 3", "tf_keras": "tf_keras"}
SUFFIXES: Final = {"keras": ".keras", "tf_keras": ".h5"}

TOLERANCES: Final[Mapping[str, float]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)
"""By model, library and policy."""

HEADER: Final = (
    *("model", "library", "policy", "tolerance", "candidates", "kept", "before", "trials"),
    *("before", "time", "before", "memory", "before", "error", "unseen inputs", "before"),
    "promise",
)
HEADING: Final = "## Trials of tune and of an earlier search"
ABOUT: Final = f"""\
- 1 core of a machine shared with other programs, no GPU
- Keras 3.15.1, tf_keras 2.21.0, TensorFlow 2.21.0

`tests/bench/tune_table.py` writes this section, for models of `tests/bench/tune_models.py`.
*Before* is the search of commit `{EARLIER}`, which ranked layers without gradients, on the same
machine with the same models and tolerances.

- *Time* is the processor time of the command and its child process, which includes the start of
  TensorFlow, and *memory* is the peak memory of the larger one. Empty cells were not measured.
- *Unseen inputs* is the error that `policytool check` finds in the written model, with inputs that
  the search did not use; bold numbers exceed the tolerance. *Not safe* is its answer if too many
  predictions change on these inputs.
- *Promise* is the answer on the 16 rows that validate the set. They are too few for a bound: the
  number of rows that would be enough is in parentheses. The earlier search had no promise, and also
  accepted a set that changes too many predictions on these rows: the set for MobileNetV3-Small of
  tf_keras in mixed_bfloat16 is larger now only because layers are added until it is not *not safe*,
  although its tolerance allows many changes. A set can also be smaller because errors cancel on the
  rows of the search, and fail on other rows."""


def main(arguments: list[str]) -> None:
    """Tune each model, and print the section."""
    parser = argparse.ArgumentParser(description="compare the searches of tune of two revisions")
    parser.add_argument("directory", type=Path)
    parser.add_argument("python", help="the interpreter with both libraries")
    parser.add_argument("--model", action="append", choices=MODELS, help="default: all")
    parser.add_argument("--before", type=Path, metavar="TREE", help="checkout of another revision")
    parser.add_argument("--results", type=Path, metavar="FILE", default=Path("tune.jsonl"))
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the section of this page")
    given = parser.parse_args(arguments)
    text = given.results.read_text(encoding="utf-8") if given.results.exists() else ""
    rows = {(row["key"], row["search"]): row for row in map(json.loads, text.splitlines())}
    trees = {"now": ROOT, **({"before": given.before} if given.before else {})}
    for key, search in itertools.product(TOLERANCES, trees):
        model, library, policy = key.split("/")
        path = given.directory / library / f"{model}{SUFFIXES[library]}"
        if (key, search) in rows or not path.exists() or model not in (given.model or MODELS):
            continue
        figures = tuned(path, policy, TOLERANCES[key], given.python, trees[search])
        rows[key, search] = {"key": key, "search": search, **figures}
        with given.results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(rows[key, search]) + "\n")
    page = section(rows)
    sys.stdout.write(page)
    if given.write:
        write_section(given.write, HEADING, page)


def tuned(path: Path, policy: str, tolerance: float, python: str, tree: Path) -> Row:
    """Tune a model with a revision, check the result on other inputs, and return the row."""
    settings: dict[str, Any] = {"python": python, "device": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / path.name
        options = (
            *("--to", policy, "--tolerance", str(tolerance), "--device", "cpu"),
            *("--inputs", str(path.with_suffix(".npz").resolve()), "--python", python),
        )
        run = run_tune(path, written, *options, tree=tree)
        best = run.tuning["best"] or {}
        unseen = answer = None
        if written.exists():
            others = {**settings, "inputs": path.with_suffix(".unseen.npz")}
            (check,) = policytool.check(path, written, **others).to_dict()["check"]["runs"]
            unseen = max(output["verdict"]["error"] for output in check["outputs"])
            answer = [output["answer"]["answer"] for output in check["outputs"]]
    return {
        **run.figures,
        "paths": run.tuning["kept"],
        "candidates": len(run.tuning["layers"]),
        "ending": run.tuning["ending"],
        "error": best.get("error"),
        "promise": best.get("promise"),
        "unseen": unseen,
        "answer": answer,
    }


def section(rows: Mapping[tuple[str, str], Row]) -> str:
    """Return the section with its heading, for the models that were measured."""
    pairs = {
        key: (rows[key, "now"], rows.get((key, "before")))
        for key in TOLERANCES
        if (key, "now") in rows
    }
    lines = [
        HEADER,
        ("---",) * len(HEADER),
        *(tuple(cells(key, now, before or {})) for key, (now, before) in pairs.items()),
    ]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    both = {key: (now, before) for key, (now, before) in pairs.items() if before is not None}
    summary = "".join(f"- {line}\n" for line in conclusions(both)) if both else ""
    return f"{HEADING}\n\n{table}\n{ABOUT}\n{summary}"


def conclusions(both: Mapping[str, tuple[Row, Row]]) -> Iterator[str]:
    """Yield the comparison of both searches in words."""
    ratios = ", ".join(
        f"{statistics.median(shares):.2f} of the {words}"
        for key, words in (("trials", "trials"), ("seconds", "time"), ("mib", "memory"))
        if (
            shares := [
                now[key] / before[key] for now, before in both.values() if now[key] and before[key]
            ]
        )
    )
    yield (
        f"Of the {len(TOLERANCES)} rows, {len(both)} were measured with both searches. On the "
        f"median, the search needs\n  {ratios} before."
    )
    larger = [
        f"{row_name(key)} ({now['kept']} and {before['kept']} layers)"
        for key, (now, before) in both.items()
        if now["kept"] > before["kept"]
    ]
    smaller = sum(now["kept"] < before["kept"] for now, before in both.values())
    yield f"{smaller} of these sets are smaller than before, and {len(larger)} are larger" + (
        f":\n  {'; '.join(larger)}." if larger else "."
    )


def row_name(key: str) -> str:
    """Return a row in words."""
    model, library, policy = key.split("/")
    return f"{MODELS[model]}, {LIBRARIES[library]}, {policy}"


def cells(key: str, now: Row, before: Row) -> Iterator[str]:
    """Yield the columns of a row; those of an earlier search that did not run are empty."""
    model, library, policy = key.split("/")
    tolerance = TOLERANCES[key]
    yield from (MODELS[model], LIBRARIES[library], policy, f"{tolerance:g}")
    yield str(now["candidates"])
    yield from (f"{row['kept']}" if row else "" for row in (now, before))
    yield from (trials(row) if row else "" for row in (now, before))
    yield from (time(row) if row else "" for row in (now, before))
    yield from (f"{row['mib']:,} MiB" if row else "" for row in (now, before))
    yield number(now["error"])
    yield from (unseen(row, tolerance) if row else "" for row in (now, before))
    promise = now["promise"] or {}
    needed = f" ({promise['needed']:,})" if promise.get("needed") else ""
    yield f"{promise.get('answer', '')}{needed}"


def trials(row: Row) -> str:
    """Return the number of trials, and why the search ended if its set is not minimal."""
    ended = "" if row["ending"] == "minimal" else f" ({row['ending']})"
    return f"{row['trials']}{ended}"


def time(row: Row) -> str:
    """Return the processor time; nothing for rows of which only the duration was measured."""
    return f"{row['seconds']:.0f} s" if row["seconds"] is not None else ""


def unseen(row: Row, tolerance: float) -> str:
    """Return the error on unseen inputs, in bold if it exceeds the tolerance."""
    error = row["unseen"]
    text = number(error)
    text = text if isinstance(error, float) and error <= tolerance else f"**{text}**"
    return f"{text}, not safe" if Answer.NOT_SAFE in (row["answer"] or ()) else text


def number(value: float | str | None) -> str:
    """Return an error as text."""
    return f"{value:.3g}" if isinstance(value, float) else "not finite"


if __name__ == "__main__":
    main(sys.argv[1:])
