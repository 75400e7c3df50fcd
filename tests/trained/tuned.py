"""
Tunes each trained model with its first rows, and compares the promise with the change in the
others: ``python -m tests.trained.tuned DIRECTORY PYTHON [--to POLICY]... [--write FILE]``, with the
interpreter that has TensorFlow. ``tests.trained.models`` writes the models.

It writes a section of ``docs/evidence/benchmarks.md``. ``--results FILE`` keeps the rows, so that a
run can be repeated until all models are done. ``--before TREE`` also runs the search of an earlier
revision, in a checkout of it. If Keras quantizes the layers (``--to int8``), the objective is the
metric of the task, of which policies need no labels.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

import policytool
from policytool.commands.check_options import CheckOptions
from policytool.commands.check_run import measure
from policytool.formats import discovery
from policytool.migration.planning.options import QUANTIZATIONS
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.numerics.tuning.results import TOLERANCE, largest_error
from policytool.numerics.workers import Interpreter, Worker
from tests.bench.sections import write_section
from tests.bench.tune_process import EARLIER, TuneRun, run_tune
from tests.trained.pairs import POLICIES

if TYPE_CHECKING:
    from collections.abc import Iterator

    Row = dict[str, Any]

ROWS: Final = 1024
"""Rows that ``tune`` gets, half of them for the search."""

SPLITS: Final = 10
"""Parts of the fresh rows, each of which is checked by itself."""

LAYERS: Final = ("model", "policy", "candidates", "kept", "margin", "trials", "time")
PROMISE: Final = ("answer", "promise", "fresh rows", "change")
BEFORE: Final = ("kept before", "trials before", "time before")
BROKEN: Final = "broken splits"
HEADER: Final = (*LAYERS, *BEFORE, *PROMISE, BROKEN)
QUANTIZED: Final = (*LAYERS, "variables", "written", *PROMISE, "metric", "before", "after")
PROMISES: Final = "## Promises of tune"
QUANTIZATION: Final = "## Quantization by tune"

ABOUT: Final = """\
- 2 cores shared with other programs, no GPU
- Keras 3, TensorFlow

`tests/trained/tuned.py` writes this section, for models that `tests/trained/models` trains on
synthetic tasks. `policytool tune` gets 1,024 rows, searches with half of them, and states its
*promise* on the others: at 95% confidence, no larger share of predictions changes, or numbers
change by no more than this share of their spread. *Change* is that of the written model in all
*fresh rows*, measured by `policytool check`. *Margin* is the number of layers that were added to
the minimal set. *Time* is the processor time of the command and its child process. There is no
promise if nothing was compared, and no change if no model was written."""
ABOUT_POLICIES: Final = f"""\
 *Before* is the search of commit `{EARLIER}`, which ranked layers without gradients, on the
same machine. *Broken splits* are the parts of the fresh rows, {SPLITS} for each model, in which the
error of the outputs exceeds the objective of {TOLERANCE:.0%}."""
ABOUT_QUANTIZED: Final = """\


The objective is the metric of the task: an accuracy that is at most 0.01 worse, or a mean absolute
error that is at most 1% larger. *Kept* layers stay unquantized. *Variables* and *written* are the
bytes of the variables of the model before and after. *Before* and *after* are the metric in the
fresh rows, in float32 and of the written model. With labels, the promise is about the metric."""


def main(arguments: list[str]) -> None:
    """Tune each model under each policy, and print the section."""
    parser = argparse.ArgumentParser(description="tune trained models")
    parser.add_argument("directory", type=Path)
    parser.add_argument("python", help="the interpreter with TensorFlow")
    parser.add_argument("--to", action="append", metavar="POLICY")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--before", type=Path, metavar="TREE", help="checkout of another revision")
    parser.add_argument("--results", type=Path, metavar="FILE", default=Path("tuned.jsonl"))
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the section of this page")
    given = parser.parse_args(arguments)
    policies = tuple(given.to or POLICIES)
    kept = given.results.read_text(encoding="utf-8") if given.results.exists() else ""
    rows = {(row["model"], row["policy"]): row for row in map(json.loads, kept.splitlines())}
    for place in sorted(given.directory.iterdir()):
        for policy in policies:
            if (place.name, policy) not in rows:
                row = dict(tuned(place, policy, given.python, given.rows))
                if given.before:
                    row |= tuned_before(place, policy, given.python, given.rows, given.before)
                rows[place.name, policy] = row
                with given.results.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    text = section([row for (_, policy), row in sorted(rows.items()) if policy in policies])
    sys.stdout.write(text)
    if given.write:
        write_section(given.write, text.partition("\n")[0], text)


def section(rows: list[Row]) -> str:
    """Return the section with its heading."""
    is_quantized = rows[0]["policy"] in QUANTIZATIONS
    header = QUANTIZED if is_quantized else HEADER
    lines = (
        header,
        ("---",) * len(header),
        *([row.get(key, "") for key in header] for row in rows),
    )
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    heading = QUANTIZATION if is_quantized else PROMISES
    return f"{heading}\n\n{table}\n{ABOUT}{ABOUT_QUANTIZED if is_quantized else ABOUT_POLICIES}\n"


def tuned(place: Path, policy: str, python: str, rows: int) -> Iterator[tuple[str, str]]:
    """Yield the columns of a model under a policy."""
    about = json.loads((place / "about.json").read_text(encoding="utf-8"))
    model = place / about["model"]
    arrays = {name: dict(np.load(place / f"{name}.npz")) for name in ("inputs", "labels")}
    has_metric = policy in QUANTIZATIONS
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / model.name
        run = run_tune(model, written, *options(place, Path(folder), policy, python, rows))
        values = run.tuning
        best = values["best"] or {}
        yield from zip(LAYERS, layers(place, policy, run), strict=True)
        for point in values["curve"]:
            if point["bytes"] is not None and (point["chosen"] or not point["converted"]):
                yield "written" if point["chosen"] else "variables", f"{point['bytes']:,}"
        yield "answer", values["answer"]
        promise = best.get("promise") or {}
        yield "promise", "" if promise.get("most") is None else f"{promise['most']:.3%}"
        if not written.exists():
            return
        fresh: Row = {
            name: {key: array[rows:] for key, array in arrays[name].items()}
            for name in ("inputs", *(["labels"] if has_metric else []))
        }
        if has_metric:
            fresh["metric"] = metric(about)
        (check,) = policytool.check(
            model, written, batches="x64", python=python, **fresh
        ).to_dict()["check"]["runs"]
        yield from zip(PROMISE[2:], change(check["outputs"]), strict=True)
        if not has_metric:
            broken = broken_splits(model, written, arrays["inputs"], rows, python)
            yield BROKEN, f"{broken} of {SPLITS}"
        else:
            (output,) = check["metric"]["outputs"]
            yield "metric", check["metric"]["name"]
            yield "before", f"{output['reference']:.4g}"
            yield "after", f"{output['candidate']:.4g}"


def metric(about: Row) -> str:
    """Return the metric of the task of a model."""
    return str(next(iter(about["metrics"].values())))


def options(place: Path, folder: Path, policy: str, python: str, rows: int) -> Iterator[str]:
    """Yield the options of a search, after writing the rows that it gets into a directory."""
    yield from ("--to", policy, "--batches", "x64", "--python", python)
    has_metric = policy in QUANTIZATIONS
    for name in ("inputs", *(["labels"] if has_metric else [])):
        arrays = dict(np.load(place / f"{name}.npz"))
        file = folder / f"{name}.npz"
        np.savez(file, **{key: array[:rows] for key, array in arrays.items()})
        yield from (f"--{name}", str(file))
    if has_metric:
        yield from (
            "--metric",
            metric(json.loads((place / "about.json").read_text(encoding="utf-8"))),
        )


def broken_splits(model: Path, written: Path, inputs: Row, rows: int, python: str) -> int:
    """Return in how many parts of the fresh rows the error of the written model is too large."""
    reference, candidate = (discovery.named_input(str(path)) for path in (model, written))
    broken = 0
    with Worker(Interpreter(python=python)) as worker:
        tools = TensorFlowTools(worker=worker)
        for part in range(SPLITS):
            file = written.with_name(f"part-{part}.npz")
            np.savez(file, **{name: array[rows:][part::SPLITS] for name, array in inputs.items()})
            with tools.hand_over() as hand_over:
                options = CheckOptions(inputs=file)
                check = measure(reference, candidate, options, tools, hand_over).check
            error = largest_error(check.runs[0])
            broken += error is None or error > TOLERANCE
    return broken


def tuned_before(place: Path, policy: str, python: str, rows: int, tree: Path) -> Row:
    """Return the columns of a model under a policy by the search of another revision."""
    about = json.loads((place / "about.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        model, written = (path / about["model"] for path in (place, Path(folder)))
        given = options(place, Path(folder), policy, python, rows)
        run = run_tune(model, written, *given, tree=tree)
    return dict(zip(BEFORE, costs(run), strict=True))


def layers(place: Path, policy: str, run: TuneRun) -> Iterator[str]:
    """Yield the number of layers of each kind, and the cost of the search."""
    kept, trials, time = costs(run)
    yield from (place.name, policy, str(len(run.tuning["layers"])), kept)
    yield from (str(run.tuning["margin"]), trials, time)


def costs(run: TuneRun) -> tuple[str, str, str]:
    """Return the size of the set, the number of trials, and the time."""
    figures = run.figures
    return str(figures["kept"]), str(figures["trials"]), f"{figures['seconds']:.0f} s"


def change(outputs: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the number of fresh rows, and the largest change of an output in them."""
    answers = [output["answer"] for output in outputs if output["answer"]["kinds"]]
    deciding = [answer["kinds"][0] for answer in answers]
    yield str(max((kind["samples"] for kind in deciding), default=0))
    yield f"{max((kind['change']['value'] for kind in deciding), default=0.0):.3%}"


if __name__ == "__main__":
    main(sys.argv[1:])
