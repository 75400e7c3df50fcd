"""Policy names, against what fifteen releases accept, and as properties."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.model.layer_policies import UnclearPolicyError, resolve
from policytool.releases import dtypes, generations, policy
from policytool.releases.generations import GENERATIONS
from policytool.releases.policy import Auto, Dynamic, Fixed, LossScale, Policy, PolicyMap, Unscaled
from policytool.releases.releases import RELEASES
from policytool.support.errors import PolicyNameError, SpellingError
from policytool.support.patterns.matching import Matcher
from tests.helpers.cases import for_each
from tests.helpers.paths import FIXTURES

ORDER: Final = [release.id for release in RELEASES]
ASKED: Final = {
    file.parent.name: answers
    for file in sorted(FIXTURES.glob("*/policies.json"))
    if (answers := json.loads(file.read_text(encoding="utf-8"))["names"])
}
"""
Release to its answer for each name; standalone Keras 2 has no policies and was asked for none.
"""


def index(release: str) -> int:
    """
    Return where a release stands among all, given as ``TF 2.1``, ``Keras 3.0`` or ``tf_keras2.21``.
    """
    return ORDER.index(release.replace("TF ", "tf").replace("Keras ", "keras"))


def names() -> list[str]:
    """
    Return the names that the releases were asked for and that are no tensor dtypes of integers.
    """
    asked = {name for answers in ASKED.values() for name in answers}
    return sorted(
        name
        for name in asked
        if name not in {"null", ""} and (name not in dtypes.NAMES or dtypes.is_float(name))
    )


@for_each("name", names())
def test_policy_name_is_known_if_a_release_accepts_the_name(name: str) -> None:
    """
    Other names give an error that lists the valid names. Only Keras 3.1, which is not a fixture,
    accepted int8 from float16.
    """
    accepted = any(answers[name]["accepted"] for answers in ASKED.values())
    if accepted or name == "int8_from_mixed_float16":
        assert policy.policy_from_name(name).name == name
    else:
        with pytest.raises(
            PolicyNameError, match=r"mixed_float16, mixed_bfloat16.*int8_from_<policy>.*infer"
        ):
            policy.policy_from_name(name)


@pytest.mark.parametrize("release", sorted(ASKED))
def test_dtypes_and_lifecycle_agree_with_the_release(release: str) -> None:
    """
    A release accepts a name from its introduction until its removal, and gives it the same compute
    and variable dtype.
    """
    for name in names():
        answer: dict[str, Any] = ASKED[release][name]
        try:
            known = policy.policy_from_name(name)
        except PolicyNameError:
            assert not answer["accepted"], name
            continue
        life = policy.lifecycle(known)
        there = index(life.introduced) <= index(release) and (
            life.removed is None or index(release) < index(life.removed)
        )
        assert answer["accepted"] == there, (name, life)
        if answer["accepted"]:
            assert (known.compute_dtype, known.variable_dtype) == (
                answer["compute_dtype"],
                answer["variable_dtype"],
            ), name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "mixed",
        "mixed_float8",
        "mixed_float64",
        "float16_with_float64_vars",
        "int8_from_",
        "awq/8/4_from_float32",
        "int4/0_from_float32",
    ],
)
def test_names_that_look_right_but_are_not(name: str) -> None:
    """The error names what was asked for."""
    with pytest.raises(PolicyNameError) as error:
        policy.policy_from_name(name)
    assert repr(name) in str(error.value)


SCALES: Final = st.one_of(
    st.none(),
    st.just(Auto()),
    st.just(Unscaled()),
    st.builds(Fixed, value=st.floats(min_value=1e-3, max_value=1e9)),
    st.builds(
        Dynamic,
        initial=st.floats(min_value=1, max_value=1e9),
        growth_steps=st.integers(min_value=1, max_value=10**6),
        multiplier=st.floats(min_value=1.5, max_value=8),
    ),
)
NAMES: Final = st.sampled_from(
    [name for name in policy.LISTED if not policy.is_removed(policy.policy_from_name(name))]
)


@given(name=NAMES, scale=SCALES)
def test_policy_format_reads_the_policies_that_it_writes(
    name: str, scale: LossScale | None
) -> None:
    base = policy.policy_from_name(name)
    expected = (
        base
        if base.quantization
        else Policy(
            name=name,
            compute_dtype=base.compute_dtype,
            variable_dtype=base.variable_dtype,
            loss_scale=scale,
        )
    )
    for generation in GENERATIONS:
        try:
            value = generation.render(expected)
        except SpellingError:
            continue
        result = generation.parse(json.loads(json.dumps(value)))
        assert isinstance(result, Policy)
        assert result.name == expected.name
        if isinstance(
            expected.loss_scale, Dynamic | Fixed | Unscaled
        ):  # what was not passed explicitly is each reader's own default
            assert result.effective_loss_scale == expected.effective_loss_scale
        assert generation.render(result) == value


@given(name=NAMES)
def test_every_policy_format_reads_the_other_formats(name: str) -> None:
    """An edited file may contain a policy in the format of other releases."""
    expected = policy.policy_from_name(name)
    for writer in GENERATIONS:
        try:
            value = writer.render(expected)
        except SpellingError:
            continue
        for reader in GENERATIONS:
            result = generations.parse(value, reader)
            assert isinstance(result, Policy)
            assert result.name == name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"name": "mixed_float16"}, Dynamic()),
        ({"name": "mixed_float16", "loss_scale": None}, None),
        ({"name": "float32"}, None),
        ({"name": "float32", "loss_scale": "dynamic"}, Dynamic()),
        ({"name": "float32", "loss_scale": 128}, Fixed(value=128.0)),
        ({"name": "mixed_float16", "loss_scale": "auto"}, Dynamic()),
    ],
)
def test_loss_scales_of_hand_made_configs(
    value: dict[str, Any], expected: Dynamic | Fixed | None
) -> None:
    """
    Besides serialised objects, the seed's own forms are understood: a number, "dynamic", "auto" and
    None.
    """
    result = generations.parse({"class_name": "PolicyV1", "config": value}, GENERATIONS[4])
    assert isinstance(result, Policy)
    assert result.effective_loss_scale == expected


MAP: Final = PolicyMap(
    default=policy.policy_from_name("float32"),
    policies=(
        ("encoder/.*", policy.policy_from_name("mixed_float16")),
        ("encoder/a", policy.policy_from_name("mixed_bfloat16")),
        ("decoder", None),
    ),
)


def test_policy_map_prefers_the_exact_path() -> None:
    """
    An exact key has priority over a pattern, and a pattern over the default. A null leaves the
    policy to the release.
    """
    resolved = {
        path: resolve(MAP, path, Matcher(), full_match=True)
        for path in ("encoder/a", "encoder/b", "head", "decoder")
    }
    assert {path: found.name if found else None for path, found in resolved.items()} == {
        "encoder/a": "mixed_bfloat16",
        "encoder/b": "mixed_float16",
        "head": "float32",
        "decoder": None,
    }


def test_a_policy_map_searches_up_to_keras_3_11() -> None:
    """The older reading finds a key anywhere in the path, the newer one only as a whole."""
    assert resolve(MAP, "decoder/x", Matcher(), full_match=False) is None
    assert resolve(MAP, "decoder/x", Matcher(), full_match=True) == policy.policy_from_name(
        "float32"
    )


@pytest.mark.parametrize("key", [r"(\w+)\1", "(", "(a{1,1000}){1,1000}"])
def test_a_key_without_an_automaton_is_unclear(key: str) -> None:
    """Keys come from the file, so that only those are matched that take linear time."""
    hostile = PolicyMap(default=None, policies=((key, policy.policy_from_name("float32")),))
    with pytest.raises(UnclearPolicyError):
        resolve(hostile, "a" * 200, Matcher(), full_match=True)


@pytest.mark.parametrize("key", ["(a+)+", "(a|a)*", "a*a*a*a*a*a*"])
def test_a_key_with_many_ways_to_match_is_matched(key: str) -> None:
    """Python tries each way, which takes exponential time if none matches."""
    half = policy.policy_from_name("float16")
    result = PolicyMap(default=None, policies=((key, half),))
    assert resolve(result, "a" * 200, Matcher(), full_match=True) == half
    assert resolve(result, "a" * 200 + "b", Matcher(), full_match=True) is None


def test_two_matching_keys_are_unclear() -> None:
    """Keras raises where two patterns match, so the report does not choose."""
    both = PolicyMap(
        default=None,
        policies=(
            (".*/a", policy.policy_from_name("float32")),
            ("x/.*", policy.policy_from_name("float16")),
        ),
    )
    with pytest.raises(UnclearPolicyError, match="2 keys"):
        resolve(both, "x/a", Matcher(), full_match=True)
