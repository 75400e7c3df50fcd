"""The topics of ``policytool explain``."""

from __future__ import annotations

import json
import re
from typing import Final

import pytest

from policytool.cli.exit_codes import Exit
from policytool.releases import policy
from policytool.releases.generations import GENERATIONS
from policytool.releases.releases import RELEASES, descriptions
from policytool.rules import RULES
from policytool.support.limits import LIMITS
from tests.conftest import run
from tests.helpers.cases import for_each
from tests.helpers.paths import FIXTURES

SENTENCES: Final = {
    "float32": "computes in float32 and stores variables in float32",
    "mixed_float16": "losses are scaled dynamically",
    "mixed_bfloat16": "and casts them before use",
    "int8_from_mixed_bfloat16": "quantized in mode int8 from mixed_bfloat16",
    "infer_float32_vars": "replacement:",
}
"""By policy, a part of what is said of it."""


def test_explain_policies_lists_every_policy() -> None:
    """Each policy has a row."""
    ended = run("explain", "policies")
    assert ended.code == 0
    rows = [line.split()[0] for line in ended.out.splitlines() if line.strip()]
    assert set(policy.LISTED) <= set(rows)


@pytest.mark.parametrize("name", SENTENCES)
def test_a_policy_is_explained_in_the_format_of_each_generation(name: str) -> None:
    ended = run("explain", name)
    assert ended.code == 0
    text = " ".join(ended.out.split())
    assert SENTENCES[name] in text
    assert all(generation.title in text for generation in GENERATIONS)


@pytest.mark.parametrize("name", [None, *SENTENCES])
def test_json_lists_the_policies(name: str | None) -> None:
    ended = run("explain", name or "policies", "--format", "json")
    assert ended.code == 0
    result = json.loads(ended.out)["policies"]
    assert [item["name"] for item in result] == ([name] if name else list(policy.LISTED))


def test_another_name_is_a_usage_error() -> None:
    """The sentence names it."""
    ended = run("explain", "mixed_flaot16")
    assert ended.code == 2
    assert "mixed_flaot16" in ended.err


def test_explain_releases_lists_aliases_and_releases() -> None:
    """Aliases are first, and then the tested releases from the newest."""
    ended = run("explain", "releases")
    lines = [line.split() for line in ended.out.splitlines()]
    assert ended.code == 0
    assert [line[0] for line in lines[: len(descriptions())]] == [
        name for name, _ in descriptions()
    ]
    values = run("explain", "releases", "--format", "json").json["releases"]
    assert [release["name"] for release in values] == [release.id for release in RELEASES]
    targets = {name for name, _ in descriptions()}
    assert all(
        (release["target"] is not None) == (release["name"] in targets) for release in values
    )


@pytest.mark.parametrize(
    ("name", "release", "is_tested"),
    [
        ("keras3.15", "keras3.15: Keras 3.15", "yes"),
        ("keras3", "keras3.15: Keras 3.15", "yes"),
        ("TF2.6", "tf2.6: TF 2.6", "no"),
        ("keras1.0", "keras1.0: Keras 1.0", "no"),
    ],
)
def test_explain_release_lists_its_formats_and_policies(
    name: str, release: str, is_tested: str
) -> None:
    ended = run("explain", name)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[0] == release
    assert f"tested {is_tested}" in " ".join(ended.out.split())
    assert all(f"\n  {listed} " in ended.out for listed in policy.LISTED)


def test_explain_limit_equals_the_entry_in_the_list() -> None:
    ended = run("explain", "json-bytes", "--format", "json")
    every = run("explain", "limits", "--format", "json").json["limits"]
    assert ended.json["limits"] == [limit for limit in every if limit["name"] == "json-bytes"]
    assert LIMITS["json-bytes"].reason in " ".join(run("explain", "json-bytes").out.split())


@pytest.mark.parametrize("kind", ["rules", "policies", "limits", "releases"])
def test_each_name_of_a_list_is_a_topic(kind: str) -> None:
    """Whose values are those of the list, or more."""
    for values in run("explain", kind, "--format", "json").json[kind]:
        name = values["id"] if kind == "rules" else values["name"]
        (topic,) = run("explain", name, "--format", "json").json[kind]
        assert values.items() <= topic.items()


@pytest.mark.parametrize("format_", ["markdown", "html"])
def test_other_formats_are_for_messages(format_: str) -> None:
    """The sentence has the formats of topics."""
    ended = run("explain", RULES[0].id, "--format", format_)
    assert (ended.code, ended.out) == (2, "")
    assert "Use table or json" in ended.err


@for_each(
    ("word", "suggested"),
    [
        *((word, "mixed_bfloat16") for word in ("bf16", "BF16", "mixed_bf16", "bfloat16_mixed")),
        *(
            (word, "mixed_float16")
            for word in ("fp16", "half", "mixed_fp16", "float16_mixed", "f16")
        ),
        *((word, "float32") for word in ("fp32", "f32", "single")),
    ],
)
def test_short_names_of_policies_suggest_mixed_policies(word: str, suggested: str) -> None:
    """Never pure 16 bits, also where a policy is set."""
    for ended in (
        run("explain", word),
        run("migrate", FIXTURES / "tf2.15/default_float32.h5", "--to", word, "--preview"),
    ):
        assert ended.code == Exit.USAGE
        assert f"Did you mean '{suggested}'?" in ended.err


@for_each("name", ["convert", "upgrade", "fix", "load", "show", "quantize", "export"])
def test_commands_of_other_programs_suggest_the_command_that_does_it(name: str) -> None:
    """The suggestion is a command or a Python function."""
    ended = run(name, "model.h5")
    assert ended.code == Exit.USAGE
    command = r"policytool[ .](?:migrate|audit|inspect|load)|model\.quantize"
    assert re.search(f"Use `(?:{command})", ended.err)
