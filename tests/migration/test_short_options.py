"""Policies of many layers in a few ``--set`` options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policytool.migration import planning
from policytool.migration.plan import apply_edits
from policytool.migration.planning import decisions
from policytool.migration.planning.options import Assignment, Options, assignment
from policytool.model import reading
from tests.helpers.marks import THOROUGH, examples
from tests.helpers.planned_models import (
    Config,
    chain,
    dense,
    document,
    functional,
    layer,
    policies,
    source,
)

if TYPE_CHECKING:
    from policytool.model.loaded_model import LoadedModel

BLOCKS = 24


def residual(*, norms: bool = False) -> Config:
    """Return a residual stream whose blocks can have a normalization."""
    layers, last = [source(), dense("stem", inbound=["x"])], "stem"
    for number in range(BLOCKS):
        into = last
        if norms:
            layers.append(layer("UnitNormalization", f"norm_{number}", inbound=[last], axis=[-1]))
            into = f"norm_{number}"
        layers += [
            dense(f"blk_{number}", inbound=[into]),
            layer("Add", f"add_{number}", inbound=[last, f"blk_{number}"]),
        ]
        last = f"add_{number}"
    return functional(*layers, dense("head", inbound=[last]), outputs=["head"])


def with_float32(loaded: LoadedModel, paths: list[str], options: Options) -> Options:
    """
    Return short options that also keep layers in float32, after checking that they plan the same
    policies as full paths.
    """
    found = planning.with_layers(loaded, options, dict.fromkeys(paths, "float32"))
    each = [Assignment(pattern=path, policy="float32") for path in paths]
    exact = Options(to=options.to, assignments=(*options.assignments, *each))
    assert planned(loaded, found) == planned(loaded, exact)
    assert len(found.assignments) <= len(exact.assignments)
    return found


def planned(loaded: LoadedModel, options: Options) -> dict[str, str | None]:
    """Return the policy of each layer after a plan is applied."""
    plan = planning.draft(loaded, options)
    assert not plan.refusals
    return policies(reading.load_model(apply_edits(loaded.document, plan.edits, plan.casts)).model)


def patterns(options: Options) -> list[str]:
    """Return the patterns of the options, without ``=float32``."""
    return [one.pattern for one in options.assignments if one.policy == "float32"]


MIXED = Options(to="mixed_bfloat16")


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (range(BLOCKS), ["net/blk.*"]),
        (range(5, 17), ["net/blk_([5-9]|1[0-6])"]),
        ([3], ["net/blk_3"]),
    ],
    ids=["all", "range", "one"],
)
def test_blocks_of_a_residual_stream_are_one_option(chosen: list[int], expected: list[str]) -> None:
    loaded = reading.load_model(document(residual()))
    paths = [f"net/blk_{number}" for number in chosen]
    found = with_float32(loaded, paths, MIXED)
    assert patterns(found) == expected
    matched = decisions.matches(loaded, found.assignments)
    assert [loaded.layers[index].path for index in matched] == paths


def test_layers_that_stay_in_float32_anyway_may_match() -> None:
    """
    A pattern can also match layers that stay in float32 by default, such as the output and layers
    that exceed the range of float16.
    """
    loaded = reading.load_model(document(residual(norms=True)))
    plan = planning.draft(loaded, Options(to="mixed_float16"))
    assert "net/head" in {one.path for one in plan.kept}
    kept = {one.path for one in plan.kept}
    paths = [
        one.path
        for index, one in enumerate(loaded.layers)
        if decisions.is_settable(loaded, index) and one.path not in kept and "/" in one.path
    ]
    assert len(patterns(with_float32(loaded, paths, Options(to="mixed_float16")))) == 1


def test_patterns_of_the_user_stay_and_match_nothing_else() -> None:
    """Two patterns for one layer are an error."""
    loaded = reading.load_model(document(residual()))
    asked = Options(to="mixed_bfloat16", assignments=(assignment("net/add.*=bfloat16"),))
    paths = ["net/add_3", *(f"net/blk_{number}" for number in range(BLOCKS))]
    found = with_float32(loaded, paths, asked)
    assert found.assignments[0] == asked.assignments[0]
    assert patterns(found) == ["net/blk.*", "net/add_3"]


def test_each_policy_has_separate_patterns() -> None:
    """Layers that are kept by default are set to the policy, as ``tune`` does."""
    loaded = reading.load_model(document(residual()))
    wanted = {f"net/blk_{number}": "float32" for number in range(BLOCKS)} | {
        f"net/add_{number}": "float16" for number in range(BLOCKS)
    }
    found = planning.with_layers(loaded, MIXED, wanted)
    assert found.assignments == (
        Assignment(pattern="net/blk.*", policy="float32"),
        Assignment(pattern="net/add.*", policy="float16"),
    )


def test_layers_inside_others_follow_the_same_patterns() -> None:
    """A pattern for a wrapper also matches the layer in it."""
    blocks = [
        layer("TimeDistributed", f"td_{number}", layer=dense(f"inner_{number}"))
        for number in range(4)
    ]
    loaded = reading.load_model(document(chain(dense("stem"), *blocks, dense("head"))))
    paths = [one.path for one in loaded.layers if one.path.startswith("net/td")]
    assert len(paths) > len(blocks)
    assert patterns(with_float32(loaded, paths, MIXED)) == ["net/td.*"]


@THOROUGH
@given(st.sets(st.integers(0, BLOCKS - 1)), st.sets(st.integers(0, BLOCKS - 1)))
@settings(max_examples=examples(50), deadline=None)
def test_any_set_of_layers_plans_the_same(blocks: set[int], adds: set[int]) -> None:
    """For any set of layers, patterns plan the same policies as one path per layer."""
    loaded = reading.load_model(document(residual()))
    paths = [f"net/blk_{number}" for number in sorted(blocks)]
    paths += [f"net/add_{number}" for number in sorted(adds)]
    with_float32(loaded, paths, MIXED)
