"""Each generation against its own releases."""

from __future__ import annotations

import pkgutil

from policytool import generations
from policytool.generations import GENERATIONS, keras1, keras2, keras30, keras34, tf1, tf21, tf24, tf29, tf213
from tests.contracts.generation_contract import GenerationContract


class TestKeras1(GenerationContract):
    generation = keras1.GENERATION


class TestKeras2(GenerationContract):
    generation = keras2.GENERATION


class TestTf1(GenerationContract):
    generation = tf1.GENERATION
    loses_mixed = True


class TestTf21(GenerationContract):
    generation = tf21.GENERATION


class TestTf24(GenerationContract):
    generation = tf24.GENERATION


class TestTf29(GenerationContract):
    generation = tf29.GENERATION


class TestTf213(GenerationContract):
    generation = tf213.GENERATION


class TestKeras30(GenerationContract):
    generation = keras30.GENERATION


class TestKeras34(GenerationContract):
    generation = keras34.GENERATION


def test_every_generation_is_under_contract() -> None:
    """A generation that is added without a contract test fails here."""
    tested = {case.generation.id for case in GenerationContract.__subclasses__()}
    assert tested == {generation.id for generation in GENERATIONS}


def test_every_module_is_in_the_tuple() -> None:
    """The ordered tuple names each generation's module."""
    modules = {info.name for info in pkgutil.iter_modules(generations.__path__) if not info.name.startswith("_")}
    assert len(modules) == len(GENERATIONS)
