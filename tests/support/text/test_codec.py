"""Values that go from one process to another come back as they were."""

from __future__ import annotations

# the codec looks annotations up
from collections.abc import Mapping  # noqa: TC003  # the codec looks annotations up
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.commands.batch import tasks
from policytool.commands.inspect import Failure
from policytool.formats import discovery
from policytool.formats.document import Address, Signature
from policytool.model.model import (
    Layer,
    Model,
    Observation,
    Optimizer,
    Source,
    TracedOp,
    Variable,
    Verdict,
    Writer,
)
from policytool.releases.policy import Dynamic, Fixed, Quantization
from policytool.rules import AuditOptions, Device
from policytool.rules.finding import Finding, Fix, Remedy, Severity, Suppressed
from policytool.support.text.codec import codec
from tests.helpers.marks import SLOW
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from policytool.formats.discovery import Input


class Colour(StrEnum):
    """An enum of the tests."""

    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Leaf:
    """A dataclass with one field."""

    size: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Other:
    """A dataclass that a union can hold instead."""

    name: str | None
    colour: Colour


@dataclass(frozen=True, kw_only=True, slots=True)
class Nothing:
    """A dataclass without fields."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tree:
    """Each kind of annotation that there is a form for."""

    text: str
    number: int | None
    flag: bool | None
    mixed: str | int | None
    leaves: tuple[Leaf, ...]
    pair: tuple[str, Colour]
    choice: Leaf | Other | Nothing | None
    by_name: Mapping[str, Other]
    marks: frozenset[Colour]
    by_path: Mapping[tuple[str, ...], tuple[int, ...] | None]


TEXT = st.text(
    alphabet=st.characters(codec=None), max_size=8
)  # lone surrogates too: file names that are not UTF-8
LEAVES = st.builds(Leaf, size=st.floats(allow_nan=False) | st.integers())
OTHERS = st.builds(Other, name=st.none() | TEXT, colour=st.sampled_from(Colour))
TREES = st.builds(
    Tree,
    text=TEXT,
    number=st.none() | st.integers(),
    flag=st.none() | st.booleans(),
    mixed=st.none() | TEXT | st.integers(),
    leaves=st.lists(LEAVES, max_size=3).map(tuple),
    pair=st.tuples(TEXT, st.sampled_from(Colour)),
    choice=st.none() | LEAVES | OTHERS | st.builds(Nothing),
    marks=st.frozensets(st.sampled_from(Colour)),
    by_name=st.dictionaries(TEXT, OTHERS, max_size=3),
    by_path=st.dictionaries(
        st.lists(TEXT, max_size=2).map(tuple),
        st.none() | st.lists(st.integers(), max_size=3).map(tuple),
        max_size=3,
    ),
)


@given(TREES)
def test_what_is_encoded_comes_back(tree: Tree) -> None:
    """Equal, of the same types, in the same order; and as one line."""
    way = codec(Tree, {})
    text = way.encoded(tree)
    found = way.decoded(text)
    assert found == tree
    assert repr(replace(found, marks=frozenset())) == repr(replace(tree, marks=frozenset()))
    assert text.isascii()
    assert "\n" not in text


MODELS = st.builds(
    Model,
    path=TEXT,
    format=TEXT,
    generation=st.none() | TEXT,
    writer=st.builds(Writer, keras=st.none() | TEXT),
    layers=st.lists(
        st.builds(
            Layer,
            path=TEXT,
            name=TEXT,
            class_name=st.none() | TEXT,
            source=st.sampled_from(Source),
            loss_scale=st.none()
            | st.builds(Dynamic, initial=st.floats(allow_nan=False))
            | st.builds(Fixed, value=st.floats(allow_nan=False) | st.integers()),
            quantization=st.none()
            | st.builds(
                Quantization, mode=TEXT, source=TEXT, amax_history_length=st.none() | st.integers()
            ),
            traced_ops=st.lists(
                st.builds(TracedOp, op=TEXT, dtype=TEXT, count=st.integers()), max_size=2
            ).map(tuple),
            variables=st.lists(
                st.builds(
                    Variable,
                    name=TEXT,
                    shape=st.none() | st.lists(st.integers(), max_size=2).map(tuple),
                    dtype=TEXT,
                ),
                max_size=2,
            ).map(tuple),
            address=st.none() | st.builds(Address, part=TEXT, pointer=TEXT),
        ),
        max_size=3,
    ).map(tuple),
    optimizer=st.none()
    | st.builds(
        Optimizer,
        class_name=TEXT,
        loss_scale=st.none() | st.builds(Fixed, value=st.floats(allow_nan=False)),
    ),
    observations=st.lists(
        st.builds(Observation, code=TEXT, message=TEXT, where=st.none() | TEXT), max_size=2
    ).map(tuple),
    loaders=st.lists(st.builds(Verdict, loader=TEXT, reason=st.none() | TEXT), max_size=2).map(
        tuple
    ),
)


@given(MODELS | st.builds(Failure, path=TEXT, code=TEXT, message=TEXT, details=TEXT) | st.none())
def test_models_come_back(result: Model | Failure | None) -> None:
    """Whatever is in them."""
    way = tasks.inspect().wire().result
    found = way.decoded(way.encoded(result))
    assert found == result
    assert repr(found) == repr(result)


def test_what_a_float_cannot_be_in_json_comes_back() -> None:
    """NaN and infinities, which a loss scale of a file from a stranger may be."""
    way = codec(Leaf, {})
    assert repr(
        [
            way.decoded(way.encoded(Leaf(size=size)))
            for size in (float("nan"), float("inf"), float("-inf"))
        ]
    ) == repr([Leaf(size=float("nan")), Leaf(size=float("inf")), Leaf(size=float("-inf"))])


@pytest.fixture(scope="module")
def inputs() -> tuple[Input, ...]:
    """Return every file among the fixtures, models or not."""
    return tuple(discovery.inputs([str(FIXTURES)]))


@SLOW
@pytest.mark.parametrize(
    ("name", "asked"), [("inspect", None), ("audit", AuditOptions(targets=("keras3.15", "tf2.15")))]
)
def test_results_of_every_fixture_come_back(
    name: str, asked: Any, inputs: tuple[Input, ...]
) -> None:
    """Models, audits, failures, and what was passed over."""
    task = tasks.TASKS[name]()
    way = task.wire().result
    kinds = set()
    for found in inputs:
        result = task.attempt(found, asked)
        again = way.decoded(way.encoded(result))
        assert again == result
        assert repr(again) == repr(result)
        kinds.add(type(result))
    assert len(inputs) > 300
    assert len(kinds) > 1


def test_every_field_of_a_finding_comes_back() -> None:
    """Those too that no fixture fills."""
    remedy = Remedy(
        fix=Fix.UNSAFE,
        assignments=(("mlp/dense", "float32"),),
        to="mixed_bfloat16",
        keep_loss_scale=True,
        target="tf2.4",
        retrace=True,
    )
    finding = Finding(
        rule="PT101",
        severity=Severity.NOTE,
        message="m",
        path="p",
        address=Address(part="a", pointer="/b"),
        detail="d",
        remedy=remedy,
        advice="do",
    )
    way = codec(Suppressed, {"Address": Address})
    suppressed = Suppressed(finding=finding, reason="r", by="baseline")
    assert way.decoded(way.encoded(suppressed)) == suppressed


def test_a_question_comes_back() -> None:
    """With all that it can ask."""
    signature = Signature(
        name="serving_default",
        inputs={"x": "float32"},
        outputs={"y": "float16"},
        compute_dtypes=("float16",),
    )
    question = AuditOptions(
        rules=frozenset({"PT101", "PT201"}),
        targets=("tf2.15",),
        device=Device.GPU,
        weights=True,
        signatures={"model": (signature,)},
    )
    way = tasks.audit().wire().asked
    assert way.decoded(way.encoded(question)) == question


@pytest.mark.parametrize(
    "hint", [object, list[int], dict[str, int], set[int], bytes, tuple[str, ...] | tuple[int, str]]
)
def test_a_type_without_a_form_is_refused(hint: object) -> None:
    """When the codec is made, not when a value comes along."""
    with pytest.raises(TypeError, match="form in JSON"):
        codec(hint, {})


def test_every_task_can_be_asked_for() -> None:
    """All annotations of its values are found."""
    assert {name: task().name for name, task in tasks.TASKS.items()} == {
        name: name for name in tasks.TASKS
    }
