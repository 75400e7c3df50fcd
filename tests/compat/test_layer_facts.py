"""The facts of layer classes are what the newest releases' own layers say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from policytool.releases.layer_classes import Category, layer_facts, public_class_name
from policytool.releases.releases import KERAS2, KERAS3
from tests.compat.asking import run_script

pytestmark = pytest.mark.compat

CHILD: Final = Path(__file__).with_name("layer_answers.py")
VARIABLE: Final = frozenset({"args", "kwargs"})
"""The parameters of calls that take any arguments, whose names say nothing."""

ONLY_INPUT: Final = 1


def answers(python: Path, library: str) -> dict[str, dict[str, Any]]:
    """Return what the layers of a library say, by their classes."""
    printed = run_script(python, CHILD, library)
    result: dict[str, dict[str, Any]] = json.loads(printed.splitlines()[-1])
    return {public_class_name(name): answer for name, answer in result.items()}


@pytest.mark.parametrize(("library", "family"), [("keras", KERAS3), ("tf_keras", KERAS2)])
def test_casts_of_classes_agree_with_their_facts(
    compat_python: Path, library: str, family: str
) -> None:
    """The test covers every layer of both libraries that its config builds."""
    casting = {
        name: answer["casts"]
        for name, answer in answers(compat_python, library).items()
        if answer["casts"] is not None
    }
    assert len(casting) > 80  # most classes are built
    assert {name for name, is_casting in casting.items() if not is_casting} == {
        name for name in casting if family in layer_facts(name).without_autocast
    }


def test_arguments_of_calls_equal_those_of_keras3(compat_python: Path) -> None:
    """The order is equal. A call with only its inputs does not tell whether ``training`` exists."""
    for name, answer in answers(compat_python, "keras").items():
        facts = layer_facts(name)
        if VARIABLE.isdisjoint(answer["call"]) and facts.category is not Category.BASE:
            result = answer["call"] if len(answer["call"]) > ONLY_INPUT else ["inputs", "training"]
            assert list(facts.call) == result, name
