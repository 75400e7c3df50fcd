"""Values that go from one process to another come back as they were."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping  # noqa: TC003  # the codec looks annotations up
from dataclasses import dataclass, replace
from datetime import date  # noqa: TC003  # as above
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.commands import audit, fix, inspect, remote_migration, saved_plans
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
from policytool.rules.base import Finding, Fix, Remedy, Severity, Suppressed
from policytool.support.text import codec
from policytool.support.text.jsontext import ABSENT, Absent, Json
from tests.helpers.marks import SLOW
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import EVERY_CASE, sampled

if TYPE_CHECKING:
    from types import ModuleType

    from policytool.commands.batch.task import Task
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
    day: date | None
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
    day=st.none() | st.dates(),
    by_name=st.dictionaries(TEXT, OTHERS, max_size=3),
    by_path=st.dictionaries(
        st.lists(TEXT, max_size=2).map(tuple),
        st.none() | st.lists(st.integers(), max_size=3).map(tuple),
        max_size=3,
    ),
)


@given(TREES)
def test_encoded_values_are_decoded_unchanged(tree: Tree) -> None:
    """Decoded values have equal types and order, and the text is one line."""
    text = codec.encode(tree)
    result = codec.read(Tree, json.loads(text))
    assert result == tree
    assert repr(replace(result, marks=frozenset())) == repr(replace(tree, marks=frozenset()))
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
def test_encoded_models_are_decoded_unchanged(result: Model | Failure | None) -> None:
    """The models have arbitrary values."""
    outcome = inspect.TASK.readers().result(json.loads(codec.encode(result)))
    assert outcome == result
    assert repr(outcome) == repr(result)


def test_nan_and_infinity_are_decoded_unchanged() -> None:
    """A loss scale of an untrusted file may have such a value."""
    assert repr(
        [
            codec.read(Leaf, json.loads(codec.encode(Leaf(size=size))))
            for size in (float("nan"), float("inf"), float("-inf"))
        ]
    ) == repr([Leaf(size=float("nan")), Leaf(size=float("inf")), Leaf(size=float("-inf"))])


@pytest.fixture(scope="module")
def inputs() -> tuple[Input, ...]:
    """Return a sample of the files among the fixtures, models or not."""
    return sampled("results that come back", discovery.inputs([str(FIXTURES)]), share=4)


@SLOW
@pytest.mark.parametrize(
    ("task", "request_"),
    [(inspect.TASK, True), (audit.TASK, AuditOptions(targets=("keras3.15", "tf2.15")))],
    ids=["inspect", "audit"],
)
def test_encoded_results_of_fixtures_are_decoded_unchanged(
    task: Task[Any, Any, Any], request_: Any, inputs: tuple[Input, ...]
) -> None:
    """The results are models, audits, failures and skipped files."""
    read = task.readers().result
    kinds = set()
    for found in inputs:
        result = task.attempt(found, request_)
        again = read(json.loads(codec.encode(result)))
        assert again == result
        assert repr(again) == repr(result)
        kinds.add(type(result))
    assert len(inputs) > (300 if EVERY_CASE else 75)
    assert len(kinds) > 1


def test_every_field_of_a_finding_is_decoded_unchanged() -> None:
    """The test includes fields that no fixture has."""
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
    suppressed = Suppressed(finding=finding, reason="r", by="baseline")
    assert codec.read(Suppressed, json.loads(codec.encode(suppressed))) == suppressed


def test_encoded_request_is_decoded_unchanged() -> None:
    """The request has all of its fields."""
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
    assert audit.TASK.readers().request(json.loads(codec.encode(question))) == question


@pytest.mark.parametrize(
    "hint", [object, list[int], dict[str, int], set[int], bytes, tuple[str, ...] | tuple[int, str]]
)
def test_type_without_a_json_form_is_rejected(hint: object) -> None:
    """The error comes when the reader is created."""
    with pytest.raises(TypeError, match="form in JSON"):
        codec.reader(hint)


def test_value_without_a_json_form_is_rejected() -> None:
    """Such a value is never written in another form."""
    with pytest.raises(TypeError, match="form in JSON"):
        codec.encode([object()])


@pytest.mark.parametrize("module", [audit, fix, inspect, remote_migration, saved_plans])
def test_every_task_is_found_by_its_module(module: ModuleType) -> None:
    """A worker imports the module by name, and reads its annotations."""
    assert importlib.import_module(module.TASK.module).TASK is module.TASK
    assert all(module.TASK.readers())


@dataclass(frozen=True, kw_only=True, slots=True)
class Changed:
    """A dataclass with values that may be absent."""

    before: Json | Absent
    after: Json | Absent
    marks: tuple[Colour, ...] = ()


def test_absent_values_are_left_out() -> None:
    """A null is not an absent value."""
    text = codec.encode(Changed(before=ABSENT, after=None))
    assert text == '{"after": null, "marks": []}'
    assert codec.read(Changed, json.loads(text)) == Changed(before=ABSENT, after=None)
    assert codec.read(Changed, {"before": [1]}) == Changed(before=[1], after=ABSENT)


@pytest.mark.parametrize(
    ("cls", "found", "error"),
    [
        (Leaf, [], "expected an object"),
        (Leaf, {}, "size"),
        (Leaf, {"size": "1"}, "expected a number"),
        (Leaf, {"size": True}, "expected a number"),
        (Other, {"name": 1, "colour": "red"}, "expected text"),
        (Other, {"name": None, "colour": "green"}, "green"),
        (Changed, {"marks": "red"}, "expected a list"),
        (Address, {"part": "a", "pointer": None}, "expected text"),
    ],
)
def test_value_of_another_type_is_rejected(cls: type, found: object, error: str) -> None:
    """The error names the key or the expected type."""
    with pytest.raises((KeyError, TypeError, ValueError), match=error):
        codec.read(cls, found)


def test_more_keys_than_fields_are_no_matter() -> None:
    """A report says more of a value than reading it needs."""
    assert codec.read(Leaf, {"size": 1.5, "colour": "red"}) == Leaf(size=1.5)


def test_nan_and_infinity_are_written_as_strings_on_request() -> None:
    """The text is then valid JSON."""
    value = [Leaf(size=size) for size in (float("nan"), float("inf"), float("-inf"), 1.0)]
    assert [item["size"] for item in json.loads(codec.encode(value, nan=False))] == [
        "NaN",
        "Infinity",
        "-Infinity",
        1.0,
    ]
