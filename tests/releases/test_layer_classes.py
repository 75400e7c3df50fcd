"""One entry for each class: well formed, and consistent with what the releases answered."""

from __future__ import annotations

import json
from typing import Any, Final

import jsonschema
import pytest

from policytool.releases import data
from policytool.releases.behaviour import mask_rule
from policytool.releases.layer_classes import (
    UNKNOWN,
    Category,
    Values,
    known_classes,
    layer_facts,
    operation_facts,
)
from policytool.releases.releases import KERAS2, KERAS3, newest
from tests.helpers.paths import PACKAGE

DATA: Final = PACKAGE / "releases" / "data"
CLASSES: Final = data.read("layer_classes")
OPERATIONS: Final = data.read("operation_classes")["operations"]
SCHEMAS: Final = sorted((DATA / "schemas").glob("*.schema.json"))
ENTRIES: Final[dict[str, Any]] = {**CLASSES["classes"], **CLASSES["unlisted"]}


@pytest.mark.parametrize("name", [file.name.partition(".")[0] for file in SCHEMAS])
def test_data_matches_its_schema(name: str) -> None:
    """Every property is known, and each has a valid value."""
    schema = json.loads((DATA / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(data.read(name), schema, cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", ["layer_classes", "operation_classes", "graph_op_facts"])
def test_data_has_an_entry_on_each_line_in_order(name: str) -> None:
    """A class is added with one line, and a reader finds its place."""
    text = (DATA / f"{name}.json").read_text(encoding="utf-8").splitlines()
    for group in (value for value in data.read(name).values() if isinstance(value, dict)):
        lines = [
            text.index(next(line for line in text if f'  "{key}": {{' in line)) for key in group
        ]
        assert lines == list(range(lines[0], lines[0] + len(group)))
        if "about" not in group and group is not CLASSES["risks"]:
            assert list(group) == sorted(group)


def test_every_property_is_a_field() -> None:
    """The module returns the values of each entry."""
    for name, entry in ENTRIES.items():
        for key in entry:
            assert getattr(layer_facts(name), key) != getattr(UNKNOWN, key), (name, key)
    for name, entry in OPERATIONS.items():
        for key, value in entry.items():
            assert getattr(operation_facts(name), key) == value


def test_groups_of_classes_share_no_name() -> None:
    """A class has one entry."""
    assert not CLASSES["classes"].keys() & CLASSES["unlisted"].keys()
    assert known_classes() == ENTRIES.keys()


def test_names_of_other_classes_have_entries() -> None:
    """A later name, an equivalent class and a sub-layer are classes with an entry."""
    for name in ENTRIES:
        result = layer_facts(name)
        others = {result.later_name, result.predicts_as, result.public_name} - {None}
        created = {layer.class_name for layer in result.sublayers.values()}
        assert others | created <= known_classes()


def test_every_risk_belongs_to_a_class() -> None:
    """A row without a class would have no effect."""
    named = [name for entry in ENTRIES.values() for name in entry.get("risks", ())]
    assert set(named) == CLASSES["risks"].keys()
    families = {family for row in CLASSES["risks"].values() for family in row["families"]}
    assert families <= {KERAS2, KERAS3}


def test_unknown_classes_have_no_facts() -> None:
    """A custom class has an unknown category and unknown values."""
    assert layer_facts("MyLayer") is UNKNOWN
    assert layer_facts("MyLayer").category is Category.UNKNOWN
    assert operation_facts("MyOperation").module is None


def test_modules_of_operations_are_the_measured_ones() -> None:
    """``operations.json`` has the answers of the releases."""
    measured = {
        name.rpartition(".")[2]: name.rpartition(".")[0]
        for name in data.read("operations")["operations"]
    }
    measured["Operation"] = "operation"
    assert all(entry["module"] == measured[name] for name, entry in OPERATIONS.items())


def test_layers_that_return_their_input_keep_the_mask() -> None:
    """The returned tensor still has its mask, as measured with Keras 3 in ``layer_masks.json``."""
    for name in known_classes():
        if layer_facts(name).values is Values.UNCHANGED:
            rule = mask_rule(name, {}, newest(KERAS3).id)
            assert rule is not None
            assert rule.out == {"0": ("none",), "1": ("first",)}, name


def test_classes_without_gradients_have_no_trainable_variables() -> None:
    """No measured release has a trainable variable for such a class."""
    measured = data.read("layer_variables")["classes"]
    for name in known_classes():
        if layer_facts(name).untrained:
            own = [
                slot
                for row in measured[name]
                for slot in row["slots"]
                if slot[2] and not (name == "SpectralNormalization" and slot[0] == "kernel")
            ]
            assert own == []


def test_attributes_of_statistics_are_variables_that_are_not_trained() -> None:
    """The mean and the variance are variables of every release that has the class."""
    measured = data.read("layer_variables")["classes"]
    for name in known_classes():
        for row in measured.get(name, ()) if layer_facts(name).statistics else ():
            variables = {slot[0] for slot in row["slots"] if not slot[2]}
            assert not variables or set(layer_facts(name).statistics) <= variables


def test_classes_that_move_values_have_a_kind_and_a_rank() -> None:
    """Classes that pad or crop have a rank, from which the number of their axes follows."""
    for name in known_classes():
        entry = layer_facts(name)
        if entry.moves is not None:
            assert entry.values is Values.MOVED or entry.is_op_layer, name
        if entry.moves in {"padded", "cut"}:
            assert isinstance(entry.rank, int), name


def test_classes_that_return_or_accept_ids_are_known() -> None:
    """The classes are the encoders and lookups of the releases, and embeddings."""
    makes = {name for name in known_classes() if layer_facts(name).makes_ids}
    assert makes == {
        *("CategoryEncoding", "Discretization", "HashedCrossing", "Hashing"),
        *("IntegerLookup", "StringLookup", "TextVectorization"),
    }
    assert layer_facts("Embedding").takes_ids
