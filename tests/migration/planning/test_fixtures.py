"""
Plans for every fixture: what they leave, that they are made once, and that they are what the report
says.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from policytool.formats import format_detection
from policytool.formats.edits import REWRITTEN, Kind
from policytool.migration import planning
from policytool.migration.planning.options import RETARGETS, Options
from policytool.migration.planning.planned_document import applied
from policytool.model import reading
from policytool.model.tree import Unspelled
from policytool.releases.generations import SubPolicy
from policytool.support.errors import ModelFileError
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from policytool.formats.document import Document

RELEASES: Final = sorted(truth.parent.name for truth in FIXTURES.glob("*/truth.json"))


@cache
def documents(release: str) -> tuple[Document, ...]:
    """Return what migrate rewrites of a release's fixtures."""
    found = []
    truth = json.loads((FIXTURES / release / "truth.json").read_text(encoding="utf-8"))
    for case in truth["cases"].values():
        for file in case["files"].values():
            path = FIXTURES / release / file
            try:
                document = format_detection.document(path, f"{release}/{file}")
            except ModelFileError as error:
                assert error.code in {
                    "no-config",
                    "json-not-keras",
                    "h5-not-keras",
                    "tfjs-graph-model",
                }, error  # an index of shards, a graph
                continue
            if document.config_part is not None and document.format in REWRITTEN:
                found.append(document)
    assert found
    return tuple(found)


@pytest.mark.parametrize("release", RELEASES)
def test_modernising_changes_spellings_alone(release: str) -> None:
    """
    No layer computes otherwise, nothing deprecated is left, and no stored tensor changes but those
    that nobody reads.
    """
    for document in documents(release):
        loaded = reading.load_model(document)
        made = planning.plan(loaded, Options())
        assert not made.refusals, (document.path, made.refusals)
        assert all(edit.kind is Kind.SPELLING for edit in made.edits), document.path
        assert all(cast.before == "bfloat16" for cast in made.casts), document.path
        changed = reading.load_model(applied(document, made.edits, made.casts)).model
        for before, after in zip(loaded.layers, changed.layers, strict=True):
            assert (before.path, before.compute_dtype, before.variable_dtype) == (
                after.path,
                after.compute_dtype,
                after.variable_dtype,
            ), document.path
            assert not after.deprecated, (document.path, after.path)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("to", [None, *RETARGETS])
def test_a_second_plan_is_empty(release: str, to: str | None) -> None:
    """Migrating twice changes nothing the second time, whatever the policy."""
    for document in documents(release):
        made = planning.plan(reading.load_model(document), Options(to=to))
        if not made.refusals:
            changed = applied(document, made.edits, made.casts)
            again = planning.plan(reading.load_model(changed), Options(to=to))
            assert (again.edits, again.casts, again.refusals) == ((), (), ()), document.path


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("to", RETARGETS)
def test_every_layer_has_the_policy_that_was_planned(release: str, to: str) -> None:
    """
    A layer that followed the base has the target, a kept one computes in float32, and the others
    are as they were.
    """
    for document in documents(release):
        loaded = reading.load_model(document)
        made = planning.plan(loaded, Options(to=to))
        if made.refusals:
            continue
        kept = {one.path for one in made.kept}
        planned = {
            edit.path: edit
            for edit in made.edits
            if edit.path is not None and edit.kind is Kind.NUMERICS
        }
        changed = reading.load_model(applied(document, made.edits, made.casts)).model
        for site, before, after in zip(loaded.sites, loaded.layers, changed.layers, strict=True):
            if site.sub_policy is SubPolicy.OWN or (
                isinstance(site.spelled, dict)
                and site.spelled.get("class_name") == "DTypePolicyMap"
            ):
                continue
            if before.path in kept:
                assert after.compute_dtype == "float32", (document.path, after.path)
            elif before.path in planned and before.class_name != "InputLayer":
                source = after.quantization.source if after.quantization else after.policy
                assert source == to, (document.path, after.path)
            elif isinstance(site.spelled, Unspelled):
                continue  # it shares what the others say, or takes the loader's policy
            elif site.address is None or not any(
                edit.address == site.address for edit in made.edits
            ):
                assert (after.policy, after.compute_dtype) == (
                    before.policy,
                    before.compute_dtype,
                ), (document.path, after.path)


@pytest.mark.parametrize("release", RELEASES)
def test_float32_takes_nothing_from_a_mixed_model(release: str) -> None:
    """A mixed model stores float32: going to float32 casts no tensor."""
    for document in documents(release):
        loaded = reading.load_model(document)
        made = planning.plan(loaded, Options(to="float32"))
        if made.base_policy in {"mixed_float16", "mixed_bfloat16"} and not made.refusals:
            own = [cast for cast in made.casts if cast.before != "bfloat16"]
            assert not own, (document.path, own[:1])
