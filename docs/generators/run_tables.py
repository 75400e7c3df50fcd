"""The pages about recorded runs, and about conversions in releases that uv installed."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.releases.releases import BACKENDS, release_name
from policytool.reports.markdown import code, row

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIXTURES: Final = Path(__file__).parent.parent.parent / "fixtures"
_JAX: Final = "jax"

_ARCHITECTURES: Final = _FIXTURES.parent / "tests" / "architectures" / "record.json"

_PLACES: Final = """`python -m tests.architectures.compare` records the runs of architectures
with random weights with {first}, and compares the runs with {second} ({versions}) by
`policytool check --against`. A layer departs if its values differ by more than rounding explains:
rounding errors of both runs grow from layer to layer. Differences are relative errors.
"""

_TITLE: Final = """# Recorded runs

`fixtures/recorded_runs.py` records runs of small models, and compares other runs with them by
`policytool check --against`. A *planted* run has a difference in one layer: its weights, an
argument, a policy, or a change of Keras between the two releases. It is *named* if the report names
this layer. A *clean* run has no difference; it is *equal* if the check shows none. Models of Keras
2 are converted before they run in Keras 3.
"""

_ON_DEMAND: Final = """# Releases on demand

`fixtures/on_demand.py` converts the fixtures of each release that have weights, in an environment
without TensorFlow, with `policytool migrate DIRECTORY --target TARGET --python auto --verify`: uv
installs the releases, and the conversion is written only if both make the same predictions in the
same dtypes. Models that are *not converted* need custom classes or options that change them, or
have no equivalent in the target. A *source* that fails does so in its own release, for example
because HDF5 has bfloat16 values.
"""


def recorded_runs_page() -> str:
    """Return the page."""
    results: dict[tuple[str, str], dict[bool, list[str]]] = defaultdict(lambda: defaultdict(list))
    missed = []
    for entry in _record("recorded_runs.json"):
        run, result = entry["run"], entry["result"]
        is_clean = run["layer"] is None
        results[run["recorded"], run["release"]][is_clean].append(result)
        if result != ("equal" if is_clean else "named"):
            missed.append(f"- {code(json.dumps(run))}: {result}")
    lines = [
        _TITLE,
        row(("recorded with", "run with", "planted differences named", "clean runs equal")),
        row(("---", "---", "---:", "---:")),
    ]
    for (recorded, release), found in sorted(results.items()):
        lines.append(
            row(
                (
                    release_name(recorded),
                    "Keras 3.15 on JAX" if release == _JAX else release_name(release),
                    _share(found[False], "named"),
                    _share(found[True], "equal"),
                )
            )
        )
    ends = [*missed, *_golden_runs(), *_architectures()]
    return "\n".join([*lines, *([""] if missed else []), *ends]) + "\n"


def _golden_runs() -> Iterator[str]:
    """Yield the tables of unchanged and changed models with several policies."""
    rows = _record("golden_runs.json")
    yield from ("", "## Unchanged and changed models", "", _GOLDEN)
    yield row(
        ("recorded with", "run with", "format", "dtypes", "unchanged models equal", "largest error")
    )
    yield row(("---", "---", "---", "---", "---:", "---:"))
    for entry in rows:
        if entry["change"] is None and entry["models"] > entry["not_run"]:
            ran = (
                "Keras 3.15 on JAX" if entry["release"] == _JAX else release_name(entry["release"])
            )
            batches = f" in batches of {entry['batch_size']}" if entry["batch_size"] else ""
            yield row(
                (
                    release_name(entry["recorded"]),
                    ran + batches,
                    _FORMATS[entry["suffix"]],
                    entry["policy"],
                    f"{entry['equal']} of {entry['models'] - entry['not_run']}",
                    f"{entry['largest']:.1e}",
                )
            )
    counts: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for entry in rows:
        if entry["change"] is not None:
            found = counts[_FORMATS[entry["suffix"]], entry["change"], entry["policy"]]
            found["models"] += entry["models"] - entry["not_run"]
            found["differ"] += entry["models"] - entry["not_run"] - entry["equal"]
    policies = sorted({policy for _, _, policy in counts})
    yield from (
        "",
        row(("change", "format", *policies)),
        row(("---", "---", *("---:" for _ in policies))),
    )
    for form, change in sorted({key[:2] for key in counts}):
        cells = [counts[form, change, policy] for policy in policies]
        texts = (
            f"{cell['differ']} of {cell['models']}" if cell["models"] else "" for cell in cells
        )
        yield row((_CHANGES[change], form, *texts))


_FORMATS: Final = {"keras": "archive", "export": "graph"}
_CHANGES: Final = {
    "bias-0.01": "a bias of the head plus 0.01",
    "bias-0.1": "a bias of the head plus 0.1",
    "head-1.02": "the kernel of the head times 1.02",
    "head-1.3": "the kernel of the head times 1.3",
    "middle-1.05": "the kernel of another layer times 1.05",
    "trained": "another epoch of training",
}
_GOLDEN: Final = """`fixtures/golden_runs.py` records runs of small trained models in 8 designs, and
runs them in other releases, without and with a change. Unchanged models should be *equal*; the
largest error is that of an output, relative. Graphs are exports of Keras 3. The second table has
the numbers of changed models that *differ*. An epoch of training with a low rate leaves some models
in bfloat16 with the same weights.
"""


def _architectures() -> Iterator[str]:
    """Yield the tables of architectures that were recorded in one place and run in another."""
    for places, tables in json.loads(_ARCHITECTURES.read_text(encoding="utf-8")).items():
        first, second = places.split()
        rows = tables["compared"]
        versions = ", ".join(
            f"{'Keras' if name == 'keras' else BACKENDS[name]} {version}"
            for name, version in rows[0]["versions"].items()
        )
        yield from ("", f"## {_place(first)} and {_place(second)}", "")
        yield _PLACES.format(first=_place(first), second=_place(second), versions=versions)
        columns = ("architecture", "policy", "layers", "first layer that departs")
        yield row((*columns, "largest difference of a layer", "of the output"))
        yield row(("---", "---", "---:", "---", "---:", "---:"))
        for entry in rows:
            departs = code(entry["departs"]) if entry["departs"] else "none"
            numbers = (f"{entry[key]:.1e}" for key in ("largest", "output"))
            layers = str(entry["layers"])
            yield row((entry["model"], entry["policy"], layers, departs, *numbers))


def _place(name: str) -> str:
    """Return the words for a backend and a device."""
    backend, _, device = name.partition(":")
    return f"{BACKENDS[backend]} on {device.partition(':')[0].upper()}s"


def on_demand_page() -> str:
    """Return the page about conversions in releases that uv installed."""
    lines = [
        _ON_DEMAND,
        row(("written by", "target", "verified", "not converted", "source fails", "another dtype")),
        row(("---", "---", "---:", "---:", "---:", "---:")),
    ]
    total: Counter[str] = Counter()
    for release, entry in _record("on_demand.json").items():
        counts = Counter(entry["models"])
        total += counts
        lines.append(row((release_name(release), code(entry["target"]), *_counts(counts))))
    lines.append(row(("all", "", *_counts(total))))
    return "\n".join(lines) + "\n"


def _counts(counts: Counter[str]) -> list[str]:
    """Return the cells of a row of models by outcome."""
    known = {"verified": 0, "blocked": 1, "runs-code": 1, "not-loadable": 2, "missed": 3}
    cells = [0, 0, 0, 0]
    for outcome, number in counts.items():
        cells[known[outcome]] += number
    return [str(cell) for cell in cells]


def _record(name: str) -> Any:  # noqa: ANN401  # JSON
    """Return the content of a JSON file of the fixtures."""
    return json.loads((_FIXTURES / name).read_text(encoding="utf-8"))


def _share(results: list[str], wanted: str) -> str:
    """Return how many results are as wanted."""
    return f"{results.count(wanted)} of {len(results)}" if results else ""
