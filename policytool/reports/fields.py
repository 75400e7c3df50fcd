"""
Fields of reports, each declared once with its name, its type, its text and its value.

A record is a tuple of fields. JSON objects, JSON schemas, columns of CSV and Parquet, and reference
pages are created only from records, so that each of them has exactly these fields. The names are
those of the JSON report.

Types and fields are cheap to create: ``inspect`` creates its own at each start. Schemas are built
only for their files, by ``docs/generators``.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from policytool.support.project import VERSION
from policytool.support.text import codec
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from policytool.reports.page import Cell, Column

Source = TypeVar("Source")
Part = TypeVar("Part")
Schema = dict[str, Any]


class CellType(Enum):
    """The values of a column in CSV and Parquet; each may be null."""

    TEXT = auto()
    TEXTS = auto()
    """A list of texts; in CSV a JSON list."""

    WORDS = auto()
    """A list of texts without spaces; in CSV separated by a space."""

    INTEGER = auto()
    NUMBER = auto()
    FLAG = auto()


_CELLS: Final = {
    "integer": CellType.INTEGER,
    "number": CellType.NUMBER,
    "boolean": CellType.FLAG,
    "array": CellType.TEXTS,
}


class Type:
    """
    The values that a field can have.

    ``encode`` converts a value to JSON values; it is None if values are already JSON or enums.
    ``name`` is the name of the definition in schemas, for a type that has a definition.
    """

    __slots__ = ("_schema", "cell", "encode", "name", "parts")

    def __init__(
        self,
        schema: Schema,
        *parts: Type,
        name: str = "",
        encode: Callable[[Any], Any] | None = None,
        cell: CellType | None = None,
    ) -> None:
        """
        Declare a type.

        :param schema: the JSON schema, without ``parts``
        :param parts: the types inside the type
        :param cell: the values in a column, if the schema does not determine them
        """
        self._schema = schema
        self.parts = parts
        self.name = name
        self.encode = encode
        self.cell = cell or _CELLS.get(schema.get("type", ""), CellType.TEXT)

    def schema(self) -> Schema:
        """Return the JSON schema of the values."""
        return self._schema

    def reference(self) -> Schema:
        """Return the JSON schema to use in another one: a reference, if the type has a name."""
        return {"$ref": f"#/$defs/{self.name}"} if self.name else self.schema()


class Field(NamedTuple, Generic[Source]):
    """A field of a record."""

    name: str
    type: Type
    text: str = ""
    """The description in the schema and on the reference page: a phrase or sentences."""

    value: Callable[[Source], Any] | None = None
    """Returns the value; None for the attribute of this name."""

    is_optional: bool = False
    """Whether objects lack the field if the value is ``ABSENT``."""

    column: Column | None = None
    """The column in the table; None if the table has none."""

    cell: Callable[[Source], Cell] | None = None
    """Returns the cell in that column."""

    condition: str = ""
    """The condition under which the column is displayed, for the reference page."""


class Record(Type, Generic[Source]):
    """
    An object of fields, from a source such as a layer of a model.

    ``LAYER: Final[Record[Layer]] = Record("layer", (Field("path", TEXT), ...))``
    """

    __slots__ = ("_encoders", "_optional", "_text", "fields")

    def __init__(self, name: str, fields: Iterable[Field[Source]], text: str = "") -> None:
        """
        Declare a record.

        :param name: the name of the definition in schemas; empty for a record without a definition
        """
        self.fields = tuple(fields)
        super().__init__({}, *(field.type for field in self.fields), name=name, encode=self.values)
        self._text = text
        self._encoders = [
            (field.name, field.value or attrgetter(field.name), field.type.encode)
            for field in self.fields
        ]
        self._optional = [field.name for field in self.fields if field.is_optional]

    def values(self, source: Source) -> dict[str, Any]:
        """Return the object of a source, as JSON values and enums."""
        values = {}
        for name, value_of, encode in self._encoders:
            value = value_of(source)
            values[name] = value if encode is None or value is ABSENT else encode(value)
        for name in self._optional:
            if values[name] is ABSENT:
                del values[name]
        return values

    def field(self, name: str) -> Field[Source]:
        """Return the field with a name."""
        return next(field for field in self.fields if field.name == name)

    def select(self, *names: str) -> tuple[Field[Source], ...]:
        """Return some of the fields, in this order."""
        return tuple(map(self.field, names))

    def schema(self) -> Schema:
        """Return the JSON schema of the object, which has these fields and no others."""
        return {
            **({"description": self._text} if self._text else {}),
            "type": "object",
            "additionalProperties": False,
            "required": [field.name for field in self.fields if not field.is_optional],
            "properties": {field.name: field_schema(field) for field in self.fields},
        }


def table_columns(fields: Iterable[Field[Source]]) -> tuple[Column, ...]:
    """
    Return the columns of a table of fields.

    :raises ValueError: for a field without a column.
    """
    return tuple(_declared(field, field.column) for field in fields)


def table_cells(fields: Iterable[Field[Source]], source: Source) -> tuple[Cell, ...]:
    """
    Return the cells of a row.

    :raises ValueError: for a field without cells.
    """
    return tuple(_declared(field, field.cell)(source) for field in fields)


def _declared(field: Field[Any], part: Part | None) -> Part:
    if part is None:
        raise ValueError(f"the field {field.name} has no column in tables")
    return part


def fields_of(attribute: str, fields: Iterable[Field[Any]]) -> Iterator[Field[Any]]:
    """Yield fields whose source is an attribute of the source of another record."""
    for field in fields:
        value = field.value or attrgetter(field.name)
        yield field._replace(value=_composed(attrgetter(attribute), value))


def _composed(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda source: second(first(source))


class Report(Record[Source]):
    """The object that a command prints with ``--format json``."""

    __slots__ = ("about", "command", "number")

    def __init__(
        self, command: str, number: int, text: str, fields: Iterable[Field[Source]]
    ) -> None:
        """
        Declare a report.

        :param command: the command with its options, such as ``inspect --summary``
        :param number: the version; all changes except additive ones increase it
        """
        super().__init__("", (*first_fields(number), *fields))
        self.command, self.number, self.about = command, number, text

    def file_schema(self, identifier: str) -> Schema:
        """Return the content of the schema file."""
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": identifier,
            "title": f"policytool {self.command} --format json, version {self.number}",
            "description": self.about,
            **self.schema(),
            "$defs": definitions(self),
        }


def definitions(*types: Type) -> Schema:
    """Return the schemas of the named types within types, by name."""
    type_by_name: dict[str, Type] = {}
    for part in _parts(types):
        if part.name and type_by_name.setdefault(part.name, part) is not part:
            raise ValueError(f"two types have the name {part.name}")
    return {name: part.schema() for name, part in type_by_name.items()}


def _parts(types: Iterable[Type]) -> Iterator[Type]:
    for kind in types:
        yield kind
        yield from _parts(kind.parts)


def field_schema(field: Field[Any]) -> Schema:
    """Return the schema of a field's values."""
    reference = field.type.reference()
    return {"description": field.text, **_without_text(reference)} if field.text else reference


def _without_text(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "description"}


def text_type(pattern: str, *, name: str = "", text: str = "") -> Type:
    """Return the type of texts that match a pattern."""
    schema = {"type": "string", "pattern": pattern}
    return Type({"description": text, **schema} if text else schema, name=name)


def choice(*values: object, name: str = "", text: str = "") -> Type:
    """Return the type of fixed values."""
    schema = {"const": values[0]} if len(values) == 1 else {"enum": list(values)}
    kind = CellType.FLAG if isinstance(values[0], bool) else CellType.TEXT
    return Type({"description": text, **schema} if text else schema, name=name, cell=kind)


def choice_of(members: type[Enum], *, name: str = "", text: str = "") -> Type:
    """Return the type of the values of an enum."""
    return choice(*(member.value for member in members), name=name, text=text)


def nullable(kind: Type) -> Type:
    """Return the type that also allows null."""
    reference, encode = kind.reference(), kind.encode
    schema: Schema
    if "enum" in reference:
        schema = {**reference, "enum": [*reference["enum"], None]}
    elif "const" in reference:
        schema = {"enum": [reference["const"], None]}
    elif isinstance(reference.get("type"), str):
        schema = {**reference, "type": [reference["type"], "null"]}
    else:
        schema = {"anyOf": [{"type": "null"}, reference]}
    return Type(
        schema,
        kind,
        encode=encode and (lambda value: None if value is None else encode(value)),
        cell=kind.cell,
    )


def items(kind: Type, *, cell: CellType | None = None, **limits: object) -> Type:
    """
    Return the type of lists of values.

    :param limits: keywords of the schema, such as ``minItems``
    """
    encode = kind.encode
    return Type(
        {"type": "array", "items": kind.reference(), **limits},
        kind,
        encode=encode and (lambda values: list(map(encode, values))),
        cell=cell,
    )


def streamed_list(kind: Type, **limits: object) -> Type:
    """Return the type of a list whose items are encoded one at a time."""
    encode = kind.encode
    return Type(
        {"type": "array", "items": kind.reference(), **limits},
        kind,
        encode=lambda values: JsonItems(values if encode is None else map(encode, values)),
    )


def pair(kind: Type) -> Type:
    """Return the type of two values."""
    return items(kind, minItems=2, maxItems=2)


def mapping(kind: Type) -> Type:
    """Return the type of objects with arbitrary names and values of a type."""
    encode = kind.encode
    return Type(
        {"type": "object", "additionalProperties": kind.reference()},
        kind,
        encode=encode and (lambda values: {name: encode(value) for name, value in values.items()}),
    )


def either(
    *kinds: Type,
    encode: Callable[[Any], Any] | None = None,
    name: str = "",
    text: str = "",
) -> Type:
    """Return the type of the values of several types."""
    schema = {"anyOf": [kind.reference() for kind in kinds]}
    return Type(
        {"description": text, **schema} if text else schema, *kinds, name=name, encode=encode
    )


TEXT: Final = Type({"type": "string"})
SENTENCE: Final = Type({"type": "string", "minLength": 1})
"""A text that is not empty."""

FLAG: Final = Type({"type": "boolean"})
INTEGER: Final = Type({"type": "integer"})
COUNT: Final = Type({"type": "integer", "minimum": 0})
POSITIVE: Final = Type({"type": "integer", "minimum": 1})
FINITE: Final = Type({"type": "number"})
AMOUNT: Final = Type({"type": "number", "minimum": 0})
SHARE: Final = Type({"type": "number", "minimum": 0, "maximum": 1})
NUMBER: Final = Type(
    {
        "description": "A number, or the name of a number that JSON cannot represent.",
        "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}],
    },
    name="number",
    cell=CellType.NUMBER,
)
ANY: Final = Type({})
CODE: Final = text_type(
    "^[a-z][a-z0-9]*(-[a-z0-9]+)*$", name="code", text="A stable, machine-readable code."
)
DTYPE: Final = text_type("^[a-z][a-z0-9_]*$", name="dtype", text="A Keras dtype name, or unknown.")
DTYPES: Final = items(DTYPE, cell=CellType.WORDS, uniqueItems=True)
TEXTS: Final = items(TEXT)
OPTIONAL_TEXT: Final = nullable(TEXT)
OPTIONAL_COUNT: Final = nullable(COUNT)
OPTIONAL_NUMBER: Final = nullable(NUMBER)
OPTIONAL_SHARE: Final = nullable(SHARE)


def first_fields(number: int) -> tuple[Field[Any], ...]:
    """Return the first fields of all reports: the versions of the report and of policytool."""
    return (
        Field("version", choice(number), value=lambda _source: number),
        Field("tool", _TOOL, value=lambda _source: None),
    )


_TOOL: Final[Record[None]] = Record(
    "",
    (
        Field("name", choice("policytool"), value=lambda _source: "policytool"),
        Field("version", SENTENCE, value=lambda _source: VERSION),
    ),
)


_HIDDEN: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\ufffe\uffff]"
)
"""
Characters that JSON does not escape but that control a terminal or are invisible, and lone
surrogates, which UTF-8 cannot encode.
"""


class JsonItems(NamedTuple):
    """The items of a list, which are created one at a time."""

    values: Iterable[object]


def json_pieces(values: object, *, unicode: bool) -> Iterator[str]:
    """
    Yield the text that :func:`json_text` returns, in pieces: each item of ``JsonItems`` is one.
    """
    yield from _pieces(values, lambda value: _one_line(value, unicode=unicode))
    yield "\n"


def _pieces(values: object, encode: Callable[[object], str]) -> Iterator[str]:
    """Yield the text of values; parts without ``JsonItems`` are encoded as a whole."""
    match values:
        case JsonItems():
            yield from _enclose("[", ((encode(item),) for item in values.values), "]")
        case dict() if _has_items(values):
            members = (
                chain((encode(key), ": "), _pieces(value, encode)) for key, value in values.items()
            )
            yield from _enclose("{", members, "}")
        case list() if _has_items(values):
            yield from _enclose("[", (_pieces(value, encode) for value in values), "]")
        case _:
            yield encode(values)


def _enclose(opening: str, parts: Iterable[Iterable[str]], closing: str) -> Iterator[str]:
    yield opening
    for number, part in enumerate(parts):
        yield from (", ",) if number else ()
        yield from part
    yield closing


def _has_items(values: object) -> bool:
    """Return whether values contain ``JsonItems``."""
    match values:
        case JsonItems():
            return True
        case dict():
            return any(map(_has_items, values.values()))
        case list():
            return any(map(_has_items, values))
    return False


def json_text(values: object, *, unicode: bool) -> str:
    """
    Return a report as one line of JSON. Non-ASCII characters are escaped without ``unicode``, or if
    the report has invisible characters.
    """
    return _one_line(values, unicode=unicode) + "\n"


def _one_line(values: object, *, unicode: bool) -> str:
    text = codec.encode(values, ascii_only=not unicode, nan=False)
    if text.isascii():
        return text.replace("\x7f", "\\u007f")
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
