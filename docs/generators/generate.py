"""
Writes the generated parts of the documentation: the picture in the README, the references of
policies and of rules, the tables of loaders, and the project's address.

Run by ``make docs``; ``tests/test_docs.py`` checks that what is committed is what this writes.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from application_tables import applications_page
from architecture_page import architecture_page
from attacks_page import attacks_page
from command_reference import commands_page
from conversion_matrix import matrix_page
from conversion_tables import PAGES as CONVERSION_PAGES
from conversion_tables import behaviour_page
from crash_tables import crashes_page
from format_table import formats_page
from fuzz_tables import fuzzing_page
from limit_tables import limits_page
from man_page import man_page
from mask_tables import masks_page
from project_links import PAGES as FILES_WITH_ADDRESS
from public_tables import public_page
from report_tables import PAGES as REPORT_PAGES
from rich.console import Console
from rich.text import Text
from run_tables import on_demand_page, recorded_runs_page
from troubleshooting_page import troubleshooting_page
from variable_tables import variables_page
from verdict_tables import verdicts_page

from policytool.formats import format_detection
from policytool.migration import planning
from policytool.model import reading
from policytool.model.compatibility.incompatibilities import REFUSALS
from policytool.releases import known_arguments, policy
from policytool.releases.generations import GENERATIONS
from policytool.releases.releases import LOADERS, release_name
from policytool.reports import topics
from policytool.rules import FAMILIES, RULES
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules import Rule

ROOT: Final = Path(__file__).parent.parent.parent
FIXTURE: Final = "fixtures/tf2.3/exp_mf16_fixed128.h5"
WIDTH: Final = 100
_CONFIGS: Final = frozenset({"h5", "json", "keras", "orbax", "yaml"})
_FONT_FACE: Final = re.compile(r"\s*@font-face \{[^}]*\}")
"""rich's fonts lie on somebody's server; the viewer's own monospace font does."""


def picture() -> str:
    """Return what a terminal shows of a real command, as SVG."""
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(ROOT / FIXTURE, Path(directory, "model.h5"))
        printed = subprocess.run(
            [sys.executable, "-m", "policytool", "inspect", "model.h5"],
            cwd=directory,
            env={
                **os.environ,
                "COLUMNS": str(WIDTH),
                "FORCE_COLOR": "1",
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            encoding="utf-8",
            check=True,
        ).stdout
    console = Console(
        record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text("$ policytool inspect model.h5"))
    console.print(Text.from_ansi(printed))
    svg = console.export_svg(title="policytool inspect", unique_id="policytool")
    return _FONT_FACE.sub("", svg).replace("Fira Code", "monospace") + "\n"


def policies_page() -> str:
    """Return the reference of policies and their spellings as Markdown."""
    lines = [
        "# Dtype policies",
        "",
        (
            "`make docs` generates this page from the package's own data. "
            "`policytool explain policies` prints the same data in the terminal."
        ),
        "",
        "| policy | compute dtype | variable dtype | available since | removed in | replacement |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in policy.LISTED:
        known = policy.policy_from_name(name)
        life = policy.lifecycle(known)
        dtypes = (
            known.compute_dtype or "the dtype of the first input",
            known.variable_dtype or "the dtype of the first input",
        )
        cells = (f"`{name}`", *dtypes, life.introduced, life.removed, life.replacement)
        lines.append("| " + " | ".join(cell or "" for cell in cells) + " |")
    lines += ["", "## Formats in each release", ""]
    for generation in GENERATIONS:
        lines += [f"### {generation.title}", "", "| policy | JSON in the config |", "| --- | --- |"]
        for name in policy.LISTED:
            try:
                spelled = f"`{json.dumps(generation.render(policy.policy_from_name(name)))}`"
            except SpellingError:
                continue
            lines.append(f"| `{name}` | {spelled} |")
        lines.append("")
    return "\n".join(lines)


def compatibility_page() -> str:
    """Return the explanation of verdicts as Markdown."""
    lines = [
        "# Which releases load which files",
        "",
        (
            "`make docs` generates this page from "
            "`policytool/model/compatibility/incompatibilities.py`. The tested call is"
        ),
        "`load_model(path, compile=False)` with the default global policy. The tested releases are "
        + ", ".join(map(release_name, LOADERS))
        + ".",
        "",
        "A model has one of three verdicts for each release:",
        "",
        (
            "- *incompatible*: the release fails to load the model, for a reason in the tables of "
            "the evidence."
        ),
        "- *loads*: the release loads the model.",
        ("- *unknown*: the file does not show it. Examples are custom classes, Lambdas,"),
        (
            "  untested functions and classes, keys that no known release writes, "
            "lookup layer tables, and Keras 1 files."
        ),
        "",
        (
            "TF 2.12 and later restore a layer of a SavedModel from its traces if "
            "its config fails, "
            "unless its metadata excludes this."
        ),
        "",
        (
            "Compiled models have a second verdict for `compile=True`, with their optimizer, loss "
            "and metrics."
        ),
        (
            "Reports list these releases under *compile*: they load the model only with "
            "`compile=False`."
        ),
        "",
        (
            "A release fails to load a class that it does not have, a key that it "
            "does not support, and "
            "a config without a key that it requires."
        ),
        (
            "[Evidence](../evidence/arguments.md) lists the measured classes and keys, and "
            "[another page](../evidence/incompatibilities.md) the incompatible "
            "file formats, policies "
            "and graphs. `policytool inspect` names the reason for a model."
        ),
    ]
    return "\n".join(lines) + "\n"


def incompatibilities_page() -> str:
    """Return the table of what refuses what as Markdown."""
    lines = [
        "# File formats, policies and graphs that a release does not load",
        "",
        (
            "`make docs` generates this page from "
            "`policytool/model/compatibility/incompatibilities.py`."
        ),
        (
            "`fixtures/loads.py` and `fixtures/claim_files.py` measure the rows, with results in "
            "`fixtures/loads.json` and `fixtures/claims.json`. *All with a config* "
            "are HDF5, `.keras`, JSON, YAML and Orbax."
        ),
        "",
        "| formats | releases | reason |",
        "| --- | --- | --- |",
    ]
    releases: dict[tuple[str, str], frozenset[str]] = {}
    for row in REFUSALS:
        formats = "all with a config" if row.formats == _CONFIGS else ", ".join(sorted(row.formats))
        key = (formats, row.reason)
        releases[key] = releases.get(key, frozenset()) | row.releases
    lines += [
        f"| {formats} | {', '.join(map(_run_words, _measured_runs(names)))} | {reason} |"
        for (formats, reason), names in releases.items()
    ]
    return "\n".join(lines) + "\n"


def arguments_page() -> str:
    """Return the table of classes and keys that a release does not load, as Markdown."""
    lines = [
        "# Classes and keys that a release does not load",
        "",
        (
            "`make docs` generates this page from `policytool/releases/data/layer_arguments.json`. "
            "`fixtures/layer_arguments.py` tested every class in every release with every key "
            "that any release writes. `+module` after a release refers to files that contain the "
            "module of the class, such as `.keras` archives."
        ),
        "",
        "| class | incompatibility | releases |",
        "| --- | --- | --- |",
        *(
            row
            for kind in ("layers", "initializers", "regularizers", "constraints", "activations")
            for row in _class_rows(known_arguments.measurements()[kind])
        ),
    ]
    return "\n".join(lines) + "\n"


def _class_rows(classes: dict[str, Any]) -> Iterator[str]:
    """Yield a row for each class that a loader lacks, and for each key that it refuses or needs."""
    for name, facts in classes.items():
        for state, words in (
            ("missing", "does not exist"),
            ("fails", "cannot be rebuilt from its own config"),
        ):
            if state in facts:
                yield f"| {name} | {words} | {_in_words(facts[state])} |"
        for key, values in facts.get("refuses", {}).items():
            for value, ranges in values.items():
                what = (
                    f"`{key}` is not supported"
                    if value == known_arguments.ANY
                    else f"`{value}` is not supported as `{key}`"
                )
                yield f"| {name} | {what} | {_in_words(ranges)} |"
        for key, ranges in facts.get("requires", {}).items():
            yield f"| {name} | `{key}` is required | {_in_words(ranges)} |"


def _in_words(ranges: str) -> str:
    return ", ".join(part.replace("..", " to ") for part in ranges.split())


def outcomes(name: str) -> dict[str, dict[str, bool]]:
    """
    Return, for each fixture that ``fixtures/loads.py`` gave to the loaders, which of them took it
    without its training configuration.
    """
    recorded = json.loads((ROOT / "fixtures" / name).read_text(encoding="utf-8"))["loads"]
    return {
        file: {
            loader: result == "ok"
            for result, loaders in row.items()
            if result != "compiled"
            for loader in loaders.split()
        }
        for file, row in recorded.items()
    }


def _run_words(run: list[str]) -> str:
    """Return a run of releases as its first and its last."""
    return " to ".join(dict.fromkeys(release_name(loader) for loader in (run[0], run[-1])))


def _measured_runs(releases: frozenset[str]) -> list[list[str]]:
    """Return the measured ones of some releases, each run of neighbours by itself."""
    runs: list[list[str]] = [[]]
    for loader in LOADERS:
        if loader in releases:
            runs[-1].append(loader)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def migrated_page() -> str:
    """
    Return the table of what loads before and after ``policytool migrate``, and why the rest does
    not, as Markdown.
    """
    before, after = outcomes("loads.json"), outcomes("loads_migrated.json")
    loaders = [loader for loader in LOADERS if LOADERS.index(loader) >= LOADERS.index("tf2.3")]
    lines = [
        "# Files that load before and after migration",
        "",
        (
            "`make docs` generates this page from `fixtures/loads.json` and "
            "`fixtures/loads_migrated.json`. These files record which fixtures each"
        ),
        (
            "release loads with `compile=False`. The page covers the fixtures that `policytool "
            "migrate` changes without options. The cells show how many files load before and after "
            "migration."
        ),
        "",
        "| written by | files | " + " | ".join(loaders) + " |",
        "| --- | --- |" + " --- |" * len(loaders),
    ]
    for release in dict.fromkeys(file.partition("/")[0] for file in after):
        files = [file for file in after if file.startswith(f"{release}/")]
        cells = [
            (
                f"{sum(before[file].get(loader, False) for file in files)} → "
                f"{sum(after[file].get(loader, False) for file in files)}"
            )
            for loader in loaders
        ]
        lines.append(f"| {release} | {len(files)} | {' | '.join(cells)} |")
    lines += [
        "",
        "## Remaining incompatibilities",
        "",
        (
            "For files that fail to load after migration, this table lists the reasons given in "
            "the reports."
        ),
        "",
    ]
    lines += ["| reason | releases | files |", "| --- | --- | --- |"]
    return "\n".join([*lines, *_still_refused(after, loaders)]) + "\n"


def _still_refused(after: dict[str, dict[str, bool]], loaders: list[str]) -> Iterator[str]:
    found: dict[str, set[tuple[str, str]]] = {}
    for file, said in after.items():
        made = planning.plan(
            reading.load_model(format_detection.document(ROOT / "fixtures" / file, file)),
            planning.Options(),
        )
        reasons = {
            verdict.loader: verdict.reason or f"unknown: {verdict.not_judged}"
            for verdict in made.loaders_after
        }
        for loader in loaders:
            if not said.get(loader, True):
                found.setdefault(reasons[loader], set()).add((loader, file))
    for reason, cells in sorted(found.items(), key=lambda item: (-len(item[1]), item[0])):
        names = [loader for loader in loaders if any(cell[0] == loader for cell in cells)]
        yield f"| {reason} | {', '.join(names)} | {len({file for _, file in cells})} |"


def rules_page() -> str:
    """Return the reference of rules as Markdown."""
    lines = [
        "# Audit rules",
        "",
        (
            "`make docs` generates this page from the rule modules. `policytool explain rules` and "
            "`policytool explain ID` print the same text, with its sources. IDs are never"
        ),
        (
            "reused. A safe fix leaves predictions unchanged. An unsafe fix changes numerics "
            "or training."
        ),
    ]
    for prefix, (name, about, rules) in FAMILIES.items():
        if rules:
            lines += [
                "",
                f"## {prefix} {name}: {about}",
                "",
                "| rule | severity | fix | needs | finding |",
                "| --- | --- | --- | --- | --- |",
            ]
            lines += [_rule_row(rule) for rule in rules]
    lines.append("")
    for rule in RULES:
        lines += [f"## {rule.id} {rule.name}", "", topics.as_markdown(rule, with_sources=False)]
    return "\n".join(lines)


def _rule_row(rule: Rule) -> str:
    cells = (
        rule.severity.value,
        rule.fix.value if rule.fix else "",
        f"`{rule.needs.value}`" if rule.needs else "",
        topics.markdown(rule.summary),
    )
    return "| " + " | ".join((f"[{rule.id} {rule.name}](#{topics.anchor(rule)})", *cells)) + " |"


PAGES: Final = {
    "ARCHITECTURE.md": architecture_page,
    "docs/images/inspect.svg": picture,
    "docs/reference/commands.md": commands_page,
    "docs/reference/policies.md": policies_page,
    "docs/reference/rules.md": rules_page,
    "docs/reference/compatibility.md": compatibility_page,
    "docs/evidence/incompatibilities.md": incompatibilities_page,
    "docs/reference/policytool.1": man_page,
    "docs/evidence/arguments.md": arguments_page,
    "docs/evidence/migrated.md": migrated_page,
    "docs/reference/formats.md": formats_page,
    "docs/how-to/troubleshooting.md": troubleshooting_page,
    "docs/evidence/behaviour.md": behaviour_page,
    "docs/evidence/conversions.md": matrix_page,
    "docs/evidence/applications.md": applications_page,
    "docs/evidence/recorded-runs.md": recorded_runs_page,
    "docs/evidence/on-demand.md": on_demand_page,
    "docs/evidence/crashes.md": crashes_page,
    "docs/evidence/attacks.md": attacks_page,
    "docs/evidence/limits.md": limits_page,
    "docs/evidence/masks.md": masks_page,
    "docs/evidence/variables.md": variables_page,
    "docs/evidence/public.md": public_page,
    "docs/evidence/verdicts.md": verdicts_page,
    "docs/evidence/fuzzing.md": fuzzing_page,
    **CONVERSION_PAGES,
    **REPORT_PAGES,
    **FILES_WITH_ADDRESS,
}
"""File to the function that returns its text."""

if __name__ == "__main__":
    for name, text in PAGES.items():
        (ROOT / name).write_text(text(), encoding="utf-8")
