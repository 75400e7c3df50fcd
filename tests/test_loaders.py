"""
What the report says of loaders, against what the real loaders said of every fixture (``fixtures/loads.json``, written by ``fixtures/loads.py``).

The rows of ``policytool/refusals.py`` know containers, policies, classes and keys. What they cannot know is listed here by case, with its reason.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

import policytool
from policytool import features, planning, provenance, reading, recognition
from policytool.model import Verdict
from policytool.planning.applied import applied
from policytool.refusals import LOADERS, REFUSALS, Evidence
from policytool.reports._words import loader_lines

FIXTURES: Final = Path(__file__).parent.parent / "fixtures"
MEASURED: Final = json.loads((FIXTURES / "loads.json").read_text(encoding="utf-8"))

MIGRATED: Final = json.loads((FIXTURES / "loads_migrated.json").read_text(encoding="utf-8"))
BARE: Final = ("tf2.5", "tf2.9", "tf2.12", "tf2.15", "tf_keras2.21", "keras3.0", "keras3.3", "keras3.6", "keras3.15")
"""Loaders that read a bare policy name."""

UNPREDICTABLE: Final = {
    "lambda": "a Lambda is byte code: it loads in the Python that wrote it, and which Python a loader runs in is not in the file",
    "string_lookup": "lookup layers changed their arguments and their checkpoint keys with nearly every release",
    "integer_lookup": "as string_lookup",
    "text_vectorization": "as string_lookup",
    "preprocessing": "preprocessing layers came and changed with nearly every release",
    "subclassed": "the class itself decides what it can be rebuilt from",
    "sharded": "weights alone: no model to load",
}
"""Case to the reason why its files are not held against the rows."""

EXCEPTIONS: Final = {
    ("activation_layer", "keras3.15"): "Keras 3.15 builds an activation that is a layer without a module, its predecessors do not",
    ("awq_policy", "keras3.15"): "layers of an AWQ policy without calibrated weights, which even their writer does not load",
    ("gptq_policy", "keras3.15"): "as awq_policy",
    ("shared_layer", "keras3.15"): "Keras 3.15 does not load its own archive of a layer that a nested model shares",
}
"""Case and loader to the reason why a single verdict differs."""


def actual(path: str) -> dict[str, bool]:
    """Return for each loader whether it took the file."""
    found = {}
    for result, loaders in MEASURED["loads"][path].items():
        if result != "compiled":
            found.update(dict.fromkeys(loaders.split(), result == "ok"))
    return found


FILES: Final = sorted(path for path in MEASURED["loads"] if Path(path).name.partition(".")[0] not in UNPREDICTABLE and (FIXTURES / path).exists())


def disagreements(path: str) -> list[str]:
    """Return the loaders whose verdict is not what the loader said."""
    said = actual(path)
    case = Path(path).name.partition(".")[0]
    return [
        f"{verdict.loader}: {verdict.reason or 'loads'}, but really {'loads' if said[verdict.loader] else 'refuses'}"
        for verdict in policytool.inspect(str(FIXTURES / path)).loaders
        if verdict.loader in said and said[verdict.loader] == (verdict.reason is not None) and (case, verdict.loader) not in EXCEPTIONS
    ]


def _said_of_migrated(path: str) -> tuple[list[str], list[str]]:
    """Return where the verdict on a migrated file is not what its loader said, and which loaders refuse it for its policies."""
    made = planning.plan(reading.analysed(recognition.document(FIXTURES / path, path)), planning.Options())
    said = {loader: result == "ok" for result, loaders in MIGRATED["loads"][path].items() if result != "compiled" for loader in loaders.split()}
    case = Path(path).name.partition(".")[0]
    wrong = [
        f"{path} in {verdict.loader}: {verdict.reason or 'loads'}, but really {'loads' if said[verdict.loader] else 'refuses'}"
        for verdict in made.loaders_after
        if verdict.loader in said
        and said[verdict.loader] == (verdict.reason is not None)
        and case not in UNPREDICTABLE
        and (case, verdict.loader) not in EXCEPTIONS
    ]
    policies = [
        f"{path} in {verdict.loader}: {verdict.reason}" for verdict in made.loaders_after if verdict.loader in BARE and "polic" in (verdict.reason or "")
    ]
    return wrong, policies


def test_policies_stand_in_no_modern_loaders_way_after_migrate() -> None:
    """
    Every cell of file and loader that failed for its policy alone loads; what else stands in the way is what the rows say.

    What the real loaders said of the migrated fixtures is in ``fixtures/loads_migrated.json``.
    """
    found = [_said_of_migrated(path) for path in MIGRATED["loads"]]
    assert len(found) > 200
    assert not [text for wrong, _ in found for text in wrong]
    assert not [text for _, policies in found for text in policies]


def test_verdicts_are_what_the_real_loaders_said() -> None:
    """Of all pairs of a file and a loader at most one in two hundred differs, and the report never refuses what was not measured."""
    wrong = {path: found for path in FILES if (found := disagreements(path))}
    pairs = sum(len(actual(path)) for path in FILES)
    assert sum(len(found) for found in wrong.values()) <= pairs / 200, "\n".join(f"{path}: {found}" for path, found in wrong.items())


@pytest.mark.parametrize("loader", ["tf2.15", "tf_keras2.21", "keras3.15"])
def test_verdicts_for_the_loaders_of_today_are_exact(loader: str) -> None:
    """For the newest loader of each family every fixture's verdict is what it said."""
    wrong = [f"{path}: {text}" for path in FILES for text in disagreements(path) if text.startswith(f"{loader}:")]
    assert not wrong, "\n".join(wrong)


def test_every_row_applies_to_some_fixture() -> None:
    """A row whose mark no fixture shows was not measured."""
    unseen = list(REFUSALS)
    for path, migrated in [*((path, False) for path in MEASURED["loads"]), *((path, True) for path in MIGRATED["loads"])]:
        if (FIXTURES / path).exists():
            document = recognition.document(FIXTURES / path, path)
            if migrated:
                document = applied(document, planning.plan(reading.analysed(document), planning.Options()).edits, ())
            part = document.parts.get(document.config_part or "")
            marks = features.of(part, document.parts.get(document.training_part or ""), document.parts.values() if document.nodes else ())
            origins, _ = provenance.candidates(document.writer, marks)
            found = Evidence(document=document, features=marks, releases=frozenset(origin.release.id for origin in origins))
            unseen = [row for row in unseen if document.format not in row.formats or not row.shows(found)]
    assert not unseen, [row.reason for row in unseen]


def test_rows_name_known_loaders_in_order() -> None:
    """Each row's range is one of the loaders that were asked."""
    for row in REFUSALS:
        assert LOADERS.index(row.first) <= LOADERS.index(row.last), row.reason


def test_neighbours_are_told_as_a_range() -> None:
    """Loaders of one family in a row are joined, families are not."""
    verdicts = [Verdict(loader=loader, reason=None if loader in {"tf2.4", "tf2.5", "tf2.9", "tf_keras2.21", "keras3.15"} else "no") for loader in LOADERS]
    assert loader_lines(verdicts)[0] == ("loads in", "TF 2.4 to 2.9, tf_keras 2.21, Keras 3.15")
    assert loader_lines([]) == []
