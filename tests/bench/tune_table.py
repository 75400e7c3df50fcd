"""
Tune the models of ``tune_models.py``, and compare the sets with those of an earlier search:
``python -m tests.bench.tune_table DIRECTORY PYTHON [--write FILE]``.

``DIRECTORY`` has a directory of models for each library. Each model is tuned twice: for
mixed_float16, where a few layers overflow, and for mixed_bfloat16 with a tolerance of 60% of the
error that the model has with all layers converted, so that many small errors count. Each written
model is then checked on inputs that no search used. ``--results FILE`` keeps the rows, so that a
run can be repeated until all models are done.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import policytool
from tests.bench.sections import write_section

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

BEFORE: Final = Path(__file__).with_suffix(".json")
"""The tolerances, and the sets and trials of the earlier search, by model, library and policy."""

HEADER: Final = (
    *("model", "library", "policy", "tolerance", "candidates", "kept", "before", "trials"),
    *("before", "time", "error", "unseen inputs", "promise"),
)
HEADING: Final = "## Trials of tune and of an earlier search"
ABOUT: Final = """\
- 2 cores shared with other programs, no GPU; the earlier search ran on another machine, so its
  times cannot be compared
- Keras 3.15.1, tf_keras 2.21.0, TensorFlow 2.21.0

`tests/bench/tune_table.py` writes this section, for models of `tests/bench/tune_models.py`.
*Before* are the sets and trials of the search of commit `ca3a95a9`, which ranked layers
without gradients: those of the section above, with the same models and tolerances.

- *Unseen inputs* is the error that `policytool check` finds in the written model, with inputs that
  the search did not use; bold numbers exceed the tolerance.
- *Promise* is the answer on the 16 rows that validate the set. They are too few for a bound: the
  number of rows that would be enough is in parentheses.
- The earlier search did not reject a set that changes too many predictions on these rows. The one
  layer that it kept in MobileNetV3-Small of tf_keras meets the tolerance, but is not safe."""


def main(arguments: list[str]) -> None:
    """Tune each model, and print the section."""
    parser = argparse.ArgumentParser(description="compare the sets of tune with earlier ones")
    parser.add_argument("directory", type=Path)
    parser.add_argument("python", help="the interpreter with both libraries")
    parser.add_argument("--model", action="append", choices=MODELS, help="default: all")
    parser.add_argument("--results", type=Path, metavar="FILE", default=Path("tune.jsonl"))
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the section of this page")
    given = parser.parse_args(arguments)
    text = given.results.read_text(encoding="utf-8") if given.results.exists() else ""
    before = json.loads(BEFORE.read_text(encoding="utf-8"))
    rows = {row["key"]: row for row in map(json.loads, text.splitlines())}
    for key, earlier in before.items():
        model, library, policy = key.split("/")
        path = given.directory / library / f"{model}{SUFFIXES[library]}"
        if key not in rows and path.exists() and model in (given.model or MODELS):
            rows[key] = {"key": key, **tuned(path, policy, earlier["tolerance"], given.python)}
            with given.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[key]) + "\n")
    page = section(rows, before)
    sys.stdout.write(page)
    if given.write:
        write_section(given.write, HEADING, page)


def tuned(path: Path, policy: str, tolerance: float, python: str) -> Row:
    """Tune a model, check the result on other inputs, and return the row."""
    settings: dict[str, Any] = {"python": python, "device": "cpu"}
    inputs = {"inputs": path.with_suffix(".npz"), **settings}
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / path.name
        result = policytool.tune(path, to=policy, tolerance=tolerance, output=written, **inputs)
        values = result.to_dict()["tuning"]
        best = values["best"] or {}
        unseen = None
        if written.exists():
            others = {**settings, "inputs": path.with_suffix(".unseen.npz")}
            (run,) = policytool.check(path, written, **others).to_dict()["check"]["runs"]
            unseen = max(output["verdict"]["error"] for output in run["outputs"])
        return {
            "tolerance": tolerance,
            "candidates": len(result.layers),
            "kept": list(result.kept),
            "trials": len(result.trials),
            "ending": values["ending"],
            "seconds": values["seconds"],
            "error": best.get("error"),
            "promise": best.get("promise"),
            "unseen": unseen,
        }


def section(rows: Mapping[str, Row], before: Mapping[str, Row]) -> str:
    """Return the section with its heading, for the models that were measured."""
    lines = [
        HEADER,
        ("---",) * len(HEADER),
        *(tuple(cells(rows[key], earlier)) for key, earlier in before.items() if key in rows),
    ]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    share = statistics.median(row["trials"] / before[key]["trials"] for key, row in rows.items())
    median = (
        f"- Of the {len(before)} rows above, {len(rows)} were measured. On the median, the search "
        f"needs {share:.2f} of the trials\n  before."
    )
    return f"{HEADING}\n\n{table}\n{ABOUT}\n{median}\n"


def cells(row: Row, before: Row) -> Iterator[str]:
    """Yield the columns of a row."""
    model, library, policy = row["key"].split("/")
    yield from (MODELS[model], LIBRARIES[library], policy, f"{before['tolerance']:g}")
    yield from (str(row["candidates"]), str(len(row["kept"])), str(before["kept"]))
    ended = "" if row["ending"] == "minimal" else f" ({row['ending']})"
    yield from (f"{row['trials']}{ended}", str(before["trials"]))
    yield f"{row['seconds']:.0f} s"
    yield from (number(row["error"]), unseen(row["unseen"], row["tolerance"]))
    promise = row["promise"] or {}
    needed = f" ({promise['needed']:,})" if promise.get("needed") else ""
    yield f"{promise.get('answer', '')}{needed}"


def unseen(error: float | str | None, tolerance: float) -> str:
    """Return the error on unseen inputs, in bold if it exceeds the tolerance."""
    text = number(error)
    return text if isinstance(error, float) and error <= tolerance else f"**{text}**"


def number(value: float | str | None) -> str:
    """Return an error as text."""
    return f"{value:.3g}" if isinstance(value, float) else "not finite"


if __name__ == "__main__":
    main(sys.argv[1:])
