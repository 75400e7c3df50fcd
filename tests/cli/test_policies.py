"""``policytool policies``."""

from __future__ import annotations

import json
from typing import Final

import pytest

from policytool.releases import policy
from policytool.releases.generations import GENERATIONS
from tests.conftest import run

SAID: Final = {
    "float32": "computes in float32 and stores variables in float32",
    "mixed_float16": "losses are scaled dynamically",
    "mixed_bfloat16": "and casts them before use",
    "int8_from_mixed_bfloat16": "quantized in mode int8 from mixed_bfloat16",
    "infer_float32_vars": "replacement:",
}
"""By policy, a part of what is said of it."""


def test_all_are_listed_with_their_dtypes() -> None:
    """A row each, with the releases that have it."""
    ended = run("policies")
    assert ended.code == 0
    rows = [line.split()[0] for line in ended.out.splitlines() if line.strip()]
    assert set(policy.LISTED) <= set(rows)


@pytest.mark.parametrize("name", SAID)
def test_one_is_explained_with_every_policy_format(name: str) -> None:
    """A generation that cannot write it says so."""
    ended = run("policies", name)
    assert ended.code == 0
    text = " ".join(ended.out.split())
    assert SAID[name] in text
    assert all(generation.title in text for generation in GENERATIONS)


@pytest.mark.parametrize("name", [None, *SAID])
def test_json_has_the_same(name: str | None) -> None:
    """Policy formats are shown beside a policy that was named."""
    ended = run("policies", *([name] if name else []), "--format", "json")
    assert ended.code == 0
    found = json.loads(ended.out)["policies"]
    assert [one["name"] for one in found] == ([name] if name else list(policy.LISTED))


def test_another_name_is_a_usage_error() -> None:
    """The sentence names it."""
    ended = run("policies", "mixed_flaot16")
    assert ended.code == 2
    assert "mixed_flaot16" in ended.err
