"""Each generation against its own releases."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from policytool.releases import generations
from policytool.releases.generations import GENERATIONS, Generation, SubPolicy
from policytool.releases.releases import get
from tests.contracts.generation_contract import GenerationContract
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path


class TestKeras1(GenerationContract):
    generation = generations.KERAS_1


class TestKeras2(GenerationContract):
    generation = generations.KERAS_2


class TestTf1(GenerationContract):
    generation = generations.TF_1_4
    loses_mixed = True


class TestTf21(GenerationContract):
    generation = generations.TF_2_1


class TestTf24(GenerationContract):
    generation = generations.TF_2_4


class TestTf29(GenerationContract):
    generation = generations.TF_2_9


class TestTf213(GenerationContract):
    generation = generations.TF_2_13


class TestKeras30(GenerationContract):
    generation = generations.KERAS_3_0


class TestKeras34(GenerationContract):
    generation = generations.KERAS_3_4


def test_every_generation_is_under_contract() -> None:
    """A generation that is added without a contract test fails here."""
    tested = {case.generation.id for case in GenerationContract.__subclasses__()}
    assert tested == {generation.id for generation in GENERATIONS}


def test_every_generation_is_in_the_tuple() -> None:
    declared = {
        value.id: value for value in vars(generations).values() if isinstance(value, Generation)
    }
    assert [declared[entry.id] is entry for entry in GENERATIONS] == [True] * len(declared)


@pytest.mark.parametrize(
    "file", sorted(FIXTURES.glob("*/policies.json")), ids=lambda file: file.parent.name
)
def test_sub_layers_agree_with_live_layers(file: Path) -> None:
    """
    The class, the name and the policy of each sub-layer agree with the live instance of the
    built-in layer.
    """
    release = ".".join(file.parent.name.split(".")[:2])
    result = get(release).composites
    asked = json.loads(file.read_text(encoding="utf-8"))["composites"]
    for class_name, parts in asked.items():
        if class_name not in result or not isinstance(parts, list):
            continue
        live = {re.sub(r"_\d+$", "", part["name"]): part for part in parts}
        for sub in result[class_name]:
            part = live[sub.name]
            assert part["class_name"] == sub.class_name
            if (
                part["policy"] is not None
            ):  # the layer was given mixed_float16, the global policy was float32
                assert (part["policy"] == "float32") == (sub.policy is SubPolicy.GLOBAL)
