"""Declared fields: an object has all of them and no others."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import jsonschema
import pytest

from policytool.reports import json_lines
from policytool.reports.fields import (
    COUNT,
    OPTIONAL_TEXT,
    TEXT,
    TEXTS,
    CellType,
    Field,
    Record,
    choice,
    definitions,
    fields_of,
    items,
    nullable,
    pair,
    table_cells,
    table_columns,
)
from policytool.reports.page import Cell, Column
from policytool.reports.rows import RowColumn, row_columns, row_values
from policytool.support.text.jsontext import ABSENT


class Place(NamedTuple):
    """A source of objects."""

    name: str
    size: object
    inner: Any = None


INNER: Final[Record[Place]] = Record("inner", (Field("name", TEXT), Field("size", COUNT)))
OUTER: Final[Record[Place]] = Record(
    "",
    (
        Field(
            "name", OPTIONAL_TEXT, "A name.", column=Column(title="name"), cell=lambda _: Cell("x")
        ),
        Field("inner", nullable(items(INNER))),
        Field("size", COUNT, is_optional=True),
        Field("kinds", TEXTS, value=lambda _place: ("a", "b")),
    ),
)


def _validator(record: Record[Any]) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**record.schema(), "$defs": definitions(record)})


@pytest.mark.parametrize("size", [3, ABSENT])
def test_objects_have_the_declared_fields_and_match_the_schema(size: object) -> None:
    """Optional fields are present only with a value, and nested sources are nested objects."""
    place = Place("a", size, (Place("b", 1),))
    values = OUTER.values(place)
    assert list(values) == ["name", "inner", *(["size"] if size is not ABSENT else []), "kinds"]
    assert values["inner"] == [{"name": "b", "size": 1}]
    _validator(OUTER).validate({**values, "kinds": list(values["kinds"])})


@pytest.mark.parametrize(
    "values",
    [
        {"name": "a", "inner": None},
        {"name": "a", "inner": None, "kinds": [], "more": 1},
        {"name": 1, "inner": None, "kinds": []},
        {"name": "a", "inner": [{"name": "b"}], "kinds": []},
        {"name": "a", "inner": None, "size": -1, "kinds": []},
    ],
)
def test_other_objects_do_not_match_the_schema(values: dict[str, object]) -> None:
    """Objects with a missing, additional or mistyped field are invalid."""
    assert not _validator(OUTER).is_valid(values)


def test_source_without_a_field_has_no_object() -> None:
    """An object that lacks a field cannot be built."""
    record: Record[Place] = Record("", (Field("missing", TEXT),))
    with pytest.raises(AttributeError, match="missing"):
        record.values(Place("a", 1))


def test_fields_of_an_attribute_read_from_this_attribute() -> None:
    """Such fields have the values that the attribute declares for its own record."""
    record: Record[Place] = Record("", fields_of("inner", INNER.fields))
    assert record.values(Place("a", 1, Place("b", 2))) == {"name": "b", "size": 2}


def test_table_needs_a_column_and_a_cell_of_every_field() -> None:
    """Header and rows have the same length."""
    assert table_columns(OUTER.select("name")) == (Column(title="name"),)
    assert table_cells(OUTER.select("name"), Place("a", 1)) == (Cell("x"),)
    for make in (
        lambda: table_columns(OUTER.fields),
        lambda: table_cells(OUTER.fields, Place("a", 1)),
    ):
        with pytest.raises(ValueError, match="the field inner has no column"):
            make()


def test_row_columns_have_the_types_of_the_fields() -> None:
    """Columns of nested objects have the name of the object as a prefix."""
    columns = row_columns(OUTER, ("name", "inner.size", "kinds"), "model.")
    assert columns == (
        RowColumn("model.name", CellType.TEXT, "A name."),
        RowColumn("model.inner.size", CellType.INTEGER),
        RowColumn("model.kinds", CellType.TEXTS),
    )
    values = {"model": {"name": None, "inner": {"size": 2}, "kinds": ("a",)}}
    assert row_values(columns, values) == [None, 2, ["a"]]
    with pytest.raises(KeyError, match="other"):
        row_columns(OUTER, ("inner.other",))


def test_two_types_cannot_share_a_name() -> None:
    """A schema would have only one of them."""
    other: Record[Any] = Record("inner", (Field("other", TEXT),))
    both: Record[Any] = Record("", (Field("a", INNER), Field("b", other)))
    with pytest.raises(ValueError, match="two types have the name inner"):
        definitions(both)


@pytest.mark.parametrize(
    ("kind", "valid", "invalid"),
    [
        (nullable(choice("a")), ["a", None], ["b"]),
        (nullable(choice("a", "b")), ["b", None], ["c"]),
        (nullable(INNER), [None, {"name": "a", "size": 1}], [{"name": "a"}]),
        (pair(COUNT), [[1, 2]], [[1], [1, 2, 3], ["a", "b"]]),
        (items(TEXT, minItems=1), [["a"]], [[], [1]]),
    ],
)
def test_schema_of_a_type_accepts_only_its_values(
    kind: Any, valid: list[object], invalid: list[object]
) -> None:
    validator = jsonschema.Draft202012Validator({**kind.schema(), "$defs": definitions(kind)})
    assert all(map(validator.is_valid, valid))
    assert not any(map(validator.is_valid, invalid))


def test_end_of_lines_has_no_unknown_count() -> None:
    """A count without a field would be lost."""
    with pytest.raises(ValueError, match="no field for the counts other"):
        json_lines.end({"models": 1, "failures": 0, "skipped": 0, "other": 1}, 0)
