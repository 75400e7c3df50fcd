"""
Plans for a sample of each release's fixtures: which values they change, that a second plan is
empty, and that they agree with the report.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

import pytest

from policytool.formats import REWRITTEN, format_detection
from policytool.formats.edits import EditKind
from policytool.migration import planning
from policytool.migration.plan import apply_edits
from policytool.migration.planning.options import RETARGETS, Options
from policytool.model import reading
from policytool.model.tree import Unspelled
from policytool.releases.generations import SubPolicy
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from policytool.formats.document import Document
    from policytool.migration.plan import Plan
    from policytool.model.loaded_model import LoadedModel

pytestmark = THOROUGH


SHARE: Final = 10
KINDS: Final = ("h5", "json", "yaml", "keras", "keras-dir", "savedmodel", "tfjs")
"""The kinds of fixtures that migrate can change; of exports, it changes only those of TF 1."""

RELEASES: Final = sorted(truth.parent.name for truth in FIXTURES.glob("*/truth.json"))


@cache
def documents(release: str) -> tuple[Document, ...]:
    """Return the documents of a sample of a release's fixtures that migrate can change."""
    truth = json.loads((FIXTURES / release / "truth.json").read_text(encoding="utf-8"))
    files = [
        file
        for case in truth["cases"].values()
        for kind, file in case["files"].items()
        if kind in KINDS or (kind == "export" and release == "tf1.15")
    ]
    found = tuple(
        format_detection.document(FIXTURES / release / file, f"{release}/{file}")
        for file in sampled(f"planned fixtures of {release}", files, share=SHARE)
    )
    assert found
    assert all(document.config_part and document.format in REWRITTEN for document in found)
    return found


@cache
def loaded_models(release: str) -> tuple[LoadedModel, ...]:
    """Return the loaded models of :func:`documents`."""
    return tuple(map(reading.load_model, documents(release)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A plan for a fixture, and the fixture after the plan is applied."""

    loaded: LoadedModel
    plan: Plan
    changed: LoadedModel | None
    """None where the plan is refused."""

    @property
    def document(self) -> Document:
        """The original fixture."""
        return self.loaded.document


def _planned(loaded: LoadedModel, to: str | None) -> Planned:
    made = planning.plan(loaded, Options(to=to))
    changed = None
    if not made.refusals:
        changed = reading.load_model(apply_edits(loaded.document, made.edits, made.casts))
    return Planned(loaded=loaded, plan=made, changed=changed)


@pytest.fixture(scope="module")
def planned(request: pytest.FixtureRequest) -> tuple[Planned, ...]:
    """
    Return the plans that convert a release's fixtures to a policy, shared by the tests with the
    same parameters.
    """
    to, release = request.param
    return tuple(_planned(loaded, to) for loaded in loaded_models(release))


def to_each(*policies: str | None) -> pytest.MarkDecorator:
    """Parametrize a test with each release and each policy."""
    return pytest.mark.parametrize(
        "planned",
        [(to, release) for to in policies for release in RELEASES],
        ids=lambda pair: f"{pair[0]}-{pair[1]}",
        indirect=True,
        scope="module",
    )


@to_each(None)
def test_plan_without_a_policy_changes_only_the_policy_format(planned: tuple[Planned, ...]) -> None:
    """
    A plan without a policy only updates the policy format: no layer computes in another dtype, no
    deprecated format is left, and only tensors that no release reads change.
    """
    for one in planned:
        document, made = one.document, one.plan
        assert not made.refusals, (document.path, made.refusals)
        assert all(edit.kind is EditKind.FORMAT for edit in made.edits), document.path
        assert all(cast.before == "bfloat16" for cast in made.casts), document.path
        assert one.changed is not None
        layers = zip(one.loaded.layers, one.changed.model.layers, strict=True)
        for before, after in layers:
            assert (before.path, before.compute_dtype, before.variable_dtype) == (
                after.path,
                after.compute_dtype,
                after.variable_dtype,
            ), document.path
            assert not after.deprecated, (document.path, after.path)


@to_each(None, *RETARGETS)
def test_a_second_plan_is_empty(
    planned: tuple[Planned, ...], request: pytest.FixtureRequest
) -> None:
    """A second migration to the same policy changes nothing."""
    to, _ = request.node.callspec.params["planned"]
    for one in planned:
        if one.changed is not None:
            again = planning.plan(one.changed, Options(to=to))
            assert (again.edits, again.casts, again.refusals) == ((), (), ()), one.document.path


@to_each(*RETARGETS)
def test_every_layer_has_the_policy_that_was_planned(
    planned: tuple[Planned, ...], request: pytest.FixtureRequest
) -> None:
    """
    After a plan, layers with the base policy have the target policy, kept layers compute in
    float32, and all other layers are unchanged.
    """
    to, _ = request.node.callspec.params["planned"]
    for one in planned:
        document, made = one.document, one.plan
        if one.changed is None:
            continue
        kept = {keep.path for keep in made.kept}
        edited = {
            edit.path: edit
            for edit in made.edits
            if edit.path is not None and edit.kind is EditKind.NUMERICS
        }
        for site, before, after in zip(
            one.loaded.placed.sites,
            one.loaded.layers,
            one.changed.model.layers,
            strict=True,
        ):
            if site.sub_policy is SubPolicy.OWN or (
                isinstance(site.spelled, dict)
                and site.spelled.get("class_name") == "DTypePolicyMap"
            ):
                continue
            if before.path in kept:
                assert after.compute_dtype == "float32", (document.path, after.path)
            elif before.path in edited and before.class_name != "InputLayer":
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


@to_each("float32")
def test_conversion_of_a_mixed_model_to_float32_casts_no_tensor(
    planned: tuple[Planned, ...],
) -> None:
    """Its variables are already float32."""
    for one in planned:
        made = one.plan
        if made.base_policy in {"mixed_float16", "mixed_bfloat16"} and not made.refusals:
            own = [cast for cast in made.casts if cast.before != "bfloat16"]
            assert not own, (one.document.path, own[:1])
