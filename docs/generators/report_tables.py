"""
The generated parts of the pages about reports: the columns of tables and of rows, and the keys of
JSON objects, from the declarations of their fields.
"""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.reports.fields import CellType, Record, definitions
from policytool.reports.findings.fields import ROW_COLUMNS as FINDING_COLUMNS
from policytool.reports.inspection.fields import LAYER, LAYER_TABLE, MODEL
from policytool.reports.inspection.fields import ROW_COLUMNS as LAYER_COLUMNS
from policytool.reports.summaries import ROW_COLUMNS as MODEL_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from policytool.reports.fields import Field, Schema, Type
    from policytool.reports.rows import RowColumn

_REFERENCE: Final = Path(__file__).parent.parent / "reference"
_TYPES: Final = {
    CellType.TEXT: "text",
    CellType.TEXTS: "JSON list",
    CellType.WORDS: "words",
    CellType.INTEGER: "integer",
    CellType.NUMBER: "number",
    CellType.FLAG: "true, false",
}


def _table_columns(fields: Iterable[Field[Any]]) -> Iterator[str]:
    """Yield the table of a table's columns; the first is the label."""
    yield "| column | shown | meaning |"
    yield "| --- | --- | --- |"
    for field in fields:
        if field.column is not None and field.condition:
            yield f"| `{field.column.title}` | {field.condition} | {field.text} |"


def _row_columns(columns: Iterable[RowColumn]) -> Iterator[str]:
    """Yield the table of the columns of CSV and Parquet."""
    yield "| column | values | meaning |"
    yield "| --- | --- | --- |"
    for column in columns:
        yield f"| `{column.name}` | {_TYPES[column.type]} | {column.text} |"


def _keys(record: Record[Any], *separate: Record[Any]) -> Iterator[str]:
    """
    Yield the table of a record's keys; those of nested objects follow, joined by a dot.

    :param separate: records that have a table of their own
    """
    yield "| key | values | meaning |"
    yield "| --- | --- | --- |"
    rows: dict[str, tuple[list[str], str]] = {}
    for key, values, text in _key_rows(record, "", separate):
        rows.setdefault(key, ([], text))[0].append(values)
    for key, (kinds, text) in rows.items():
        yield f"| `{key}` | {', '.join(dict.fromkeys(kinds))} | {text} |"


def _key_rows(
    record: Record[Any], prefix: str, separate: tuple[Record[Any], ...]
) -> Iterator[tuple[str, str, str]]:
    for field in record.fields:
        key = f"{prefix}{field.name}{'[]' * _is_list(field.type)}"
        yield key, _values(field.type), field.text or _text(field.type)
        for nested in _records(field.type):
            if nested not in separate:
                yield from _key_rows(nested, f"{key}.", separate)


def _records(kind: Type) -> Iterator[Record[Any]]:
    """Yield the records that a value is, or that are the items of a list."""
    if isinstance(kind, Record):
        yield kind
    else:
        for part in kind.parts:
            yield from _records(part)


def _is_list(kind: Type) -> bool:
    return kind.schema().get("type") == "array" and any(_records(kind))


def _text(kind: Type) -> str:
    """Return the description of a type, or of the one that it is if it is not null."""
    texts = (part.schema().get("description") for part in (kind, *kind.parts))
    return next((text for text in texts if text), "")


def _values(kind: Type) -> str:
    """Return the values of a type in words."""
    return _schema_words(kind.schema(), definitions(kind))


def _schema_words(schema: Schema, named: Schema) -> str:
    match schema:
        case {"$ref": str(reference)}:
            return _schema_words(named[reference.rpartition("/")[2]], named)
        case {"const": value}:
            return _value_words(value)
        case {"enum": values}:
            return ", ".join(map(_value_words, values))
        case {"anyOf": [{"type": "null"}, other]}:
            return f"{_schema_words(other, named)} or null"
        case {"anyOf": kinds}:
            return ", ".join(dict.fromkeys(_schema_words(kind, named) for kind in kinds))
        case {"type": [kind, "null"]}:
            return f"{_schema_words({**schema, 'type': kind}, named)} or null"
        case {"type": "array", "items": items}:
            return f"list of {_PLURALS[_schema_words(items, named).partition(' ')[0]]}"
    return _WORDS[schema["type"]]


def _value_words(value: object) -> str:
    return f"`{value}`" if isinstance(value, str) else json.dumps(value)


_WORDS: Final = {
    "boolean": "true, false",
    "integer": "integer",
    "number": "number",
    "object": "object",
    "string": "text",
}
_PLURALS: Final = {"integer": "integers", "object": "objects", "text": "texts"}

_PARTS: Final[Mapping[str, Mapping[str, Callable[[], Iterator[str]]]]] = {
    "json-keys.md": {
        "model of inspect": partial(_keys, MODEL, LAYER),
        "layer of inspect": partial(_keys, LAYER),
        "rows of inspect": partial(_row_columns, LAYER_COLUMNS),
        "rows of inspect --summary": partial(_row_columns, MODEL_COLUMNS),
        "rows of audit": partial(_row_columns, FINDING_COLUMNS),
    },
    "reports.md": {
        "columns of the table of layers": partial(_table_columns, LAYER_TABLE),
    },
}
_PART: Final = re.compile(r"(<!-- generated: (.+?) -->\n\n).*?(\n<!-- end -->)", re.DOTALL)


def page(name: str) -> str:
    """Return a page with its generated parts as the declarations have them now."""
    parts = _PARTS[name]

    def part(match: re.Match[str]) -> str:
        return match[1] + "".join(f"{line}\n" for line in parts[match[2]]()) + match[3]

    return _PART.sub(part, (_REFERENCE / name).read_text(encoding="utf-8"))


PAGES: Final = {f"docs/reference/{name}": partial(page, name) for name in _PARTS}
"""File to the function that returns its text."""
