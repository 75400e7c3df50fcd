"""
What migrate refuses to change in a SavedModel's metadata, the newest tf_keras refuses too.

Each refused plan is carried out all the same, and what was written fails to load, or does not
compute in what the plan wanted.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from policytool.formats import format_detection, rewriting
from policytool.formats.edits import WriteOptions
from policytool.migration import planning
from policytool.migration.plan import apply_edits
from policytool.migration.planning.options import Options
from policytool.model import reading
from tests.compat.asking import Job, Loaded, ask
from tests.compat.cases import CASES, TF_KERAS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.migration.plan import Plan
    from policytool.model.loaded_model import LoadedModel
    from tests.model.test_truth import Case

pytestmark = pytest.mark.compat

TARGETS: Final = ("float16", "float64")
"""Policies that change variables' dtypes in every model that is not of them already."""

CODE: Final = "checkpoint-stays"


@dataclass(frozen=True, kw_only=True)
class Forced:
    """A refused plan that was carried out."""

    case: Case
    to: str
    path: str
    refused: tuple[str, ...]
    """The layers that the plan was refused for."""

    wanted: Mapping[str, str | None]
    """The variable dtype that the plan wanted, by layer."""

    def job(self) -> Job:
        """Return what the library is asked."""
        return Job(format="savedmodel", path=self.path)

    def confirms(self, loaded: Loaded) -> bool:
        """
        Return whether the library does not make of it what the plan wanted, in one of the layers
        that it was refused for at least.
        """
        if loaded.error is not None:
            return True
        live = {
            path: record["variable_dtype"]
            for record in loaded.layers
            for path in (record["path"], *record["also_at"])
        }
        return any(live.get(path) != self.wanted[path] for path in self.refused)


def _forced(case: Case, to: str, target: Path) -> Forced | None:
    """
    Carry out the plan for a fixture where it is refused for its checkpoint alone; None where it is
    not.
    """
    loaded: LoadedModel = reading.load_model(format_detection.document(Path(case.path), case.path))
    plan: Plan = planning.plan(loaded, Options(to=to))
    if {refusal.code for refusal in plan.refusals} != {CODE}:
        return None
    shutil.copytree(case.path, target)
    rewriting.write(
        target,
        target,
        rewriting.Changes(edits=plan.edits),
        document_format="savedmodel",
        options=WriteOptions(in_place=True, backup=False),
    )
    expected = reading.load_model(apply_edits(loaded.document, plan.edits, ())).model
    return Forced(
        case=case,
        to=to,
        path=str(target),
        refused=tuple(refusal.path for refusal in plan.refusals if refusal.path is not None),
        wanted={layer.path: layer.variable_dtype for layer in expected.layers},
    )


def test_plans_rejected_for_a_checkpoint_fail_to_load(compat_python: Path, tmp_path: Path) -> None:
    """
    For every SavedModel and two policies, a plan that would change stored variables also fails in
    the real release.
    """
    saved = [case for case in CASES if case.format == "savedmodel"]
    forced = [
        one
        for case in saved
        for to in TARGETS
        if (one := _forced(case, to, tmp_path / f"{case.release}-{case.name}-{to}"))
    ]
    assert len(forced) > len(saved)
    answers = ask(compat_python, TF_KERAS, [item.job() for item in forced])
    loaded = [
        f"{item.case.release}/{item.case.name} to {item.to}"
        for item in forced
        if not item.confirms(answers.loaded[item.job()])
    ]
    assert not loaded
