"""The page about runs that were compared with recorded runs."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Final

from policytool.releases.releases import release_name
from policytool.reports.markdown import code, row

RECORD: Final = Path(__file__).parent.parent.parent / "fixtures" / "recorded_runs.json"
_JAX: Final = "jax"

_TITLE: Final = """# Recorded runs

`fixtures/recorded_runs.py` records runs of small models, and compares other runs with them by
`policytool check --against`. A *planted* run has a difference in one layer: its weights, an
argument, a policy, or a change of Keras between the two releases. It is *named* if the report names
this layer. A *clean* run has no difference; it is *equal* if the check says so. Models of Keras 2
are converted before they run in Keras 3.
"""


def recorded_runs_page() -> str:
    """Return the page."""
    results: dict[tuple[str, str], dict[bool, list[str]]] = defaultdict(lambda: defaultdict(list))
    missed = []
    for entry in json.loads(RECORD.read_text(encoding="utf-8")):
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
    return "\n".join([*lines, *([""] if missed else []), *missed]) + "\n"


def _share(results: list[str], wanted: str) -> str:
    """Return how many results are as wanted."""
    return f"{results.count(wanted)} of {len(results)}" if results else ""
