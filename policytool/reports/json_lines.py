"""
The report of a run with many models as JSON Lines.

A header, one line for each model or failure in the order of the inputs, and an end. The report of a
shard differs from that of a whole run only in the key ``shard`` of the header, the counts in the
end, and the missing lines. The text is ASCII, so that it does not depend on the terminal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from policytool.reports.fields import (
    COUNT,
    POSITIVE,
    Field,
    Record,
    Schema,
    Type,
    choice,
    definitions,
    either,
    first_fields,
    json_text,
    text_type,
)
from policytool.reports.shared_fields import FAILURE
from policytool.support.text.jsontext import ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.commands.batch.task import Shard
    from policytool.commands.inspect import Failure
    from policytool.support.text.jsontext import Absent

FORMAT: Final = "jsonl"
VERSION: Final = 1
"""The version of the format; all changes except additive ones increase it."""

_SHA256: Final = text_type("^[0-9a-f]{64}$")
_EXIT_CODE: Final = Type({"type": "integer", "minimum": 0, "maximum": 255})
_STATUSES: Final = ("unchanged", "planned", "written", "skipped", "blocked", "missed")
_INPUT: Final[Field[Any]] = Field(
    "input",
    COUNT,
    "The position among all inputs, counted from 0.",
    value=lambda line: line[0],
)

_INPUTS: Final[Record[tuple[int, str]]] = Record(
    "",
    (
        Field("count", COUNT, value=lambda inputs: inputs[0]),
        Field("sha256", _SHA256, "A hash of their paths.", value=lambda inputs: inputs[1]),
    ),
)
_OPTIONS: Final[Record[str]] = Record(
    "",
    (
        Field(
            "sha256",
            _SHA256,
            "A hash of the options that change other lines.",
            value=lambda digest: digest,
        ),
    ),
)
_SHARD: Final[Record[Shard]] = Record(
    "",
    (
        Field("index", POSITIVE),
        Field("count", Type({"type": "integer", "minimum": 1, "maximum": 10_000})),
    ),
)
_HEADER: Final[Record[_Header]] = Record(
    "header",
    (
        *first_fields(VERSION),
        Field("command", choice("inspect", "audit", "migrate")),
        Field("inputs", _INPUTS, "All inputs of the run, including those of other shards."),
        Field("options", _OPTIONS),
        Field(
            "exit_code_without_models",
            choice(0, 4),
            "The exit code of a run that finds no model.",
        ),
        Field("shard", _SHARD, "Only with --shard.", is_optional=True),
    ),
)
_MODEL: Final = Record[tuple[int, "Mapping[str, Any]"]](
    "model",
    (
        _INPUT,
        Field(
            "model",
            Type({"type": "object", "required": ["path", "format"]}),
            "An item of models (inspect, audit) or plans (migrate), as in the JSON report of the "
            "command.",
            value=lambda line: line[1],
        ),
    ),
)
_FAILURE: Final[Record[tuple[int, Failure]]] = Record(
    "failure", (_INPUT, Field("failure", FAILURE, value=lambda line: line[1]))
)


def _count(name: str, text: str = "", *, is_optional: bool = True) -> Field[Mapping[str, int]]:
    return Field(
        name,
        COUNT,
        text,
        value=lambda values: values.get(name, ABSENT),
        is_optional=is_optional,
    )


_COMPLETE_TEXT: Final = "Whether all inputs were processed. If false, there are no counts."
_LAST: Final[Field[Any]] = Field("exit_code", _EXIT_CODE, value=lambda values: values["exit_code"])
_COUNTS: Final = (
    _count("models", is_optional=False),
    _count("failures", is_optional=False),
    _count("skipped", "Inputs that are not models.", is_optional=False),
    _count("clean", "audit: models without findings."),
    *map(_count, ("errors", "warnings", "notes", "suppressed")),
    *(_count(f"models_{status}", "migrate: models with this status.") for status in _STATUSES),
)
_COMPLETE: Final[Record[Mapping[str, int]]] = Record(
    "",
    (
        *_COUNTS,
        Field("complete", choice(True), _COMPLETE_TEXT, value=lambda _values: True),
        _LAST,
    ),
)
_EARLY: Final[Record[Mapping[str, int]]] = Record(
    "",
    (
        Field("complete", choice(False), _COMPLETE_TEXT, value=lambda _values: False),
        _LAST,
    ),
)


def _end_values(counts: Mapping[str, int]) -> dict[str, Any]:
    """Return the object of the last line, with counts if there are others than the exit code."""
    return (_EARLY if len(counts) == 1 else _COMPLETE).values(counts)


_END: Final[Record[Mapping[str, int]]] = Record(
    "end",
    (Field("end", either(_COMPLETE, _EARLY, encode=_end_values), value=lambda counts: counts),),
)
_LINES: Final = (_HEADER, _MODEL, _FAILURE, _END)


def file_schema(identifier: str) -> Schema:
    """Return the content of the schema file, which describes a line."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": identifier,
        "title": f"policytool --format jsonl, one line, version {VERSION}",
        "description": (
            "A line of the JSON Lines report of inspect, audit or migrate: the header, then a line "
            "for each model or failure in the order of the inputs, then the end. Additions keep "
            "the version number; any other change increases it."
        ),
        "type": "object",
        "oneOf": [line.reference() for line in _LINES],
        "$defs": definitions(*_LINES),
    }


class _Header(NamedTuple):
    command: str
    inputs: tuple[int, str]
    options: str
    exit_code_without_models: int
    shard: Shard | Absent


def header(
    command: str, inputs: tuple[int, str], options: str, no_model: int, shard: Shard | None
) -> str:
    """
    Return the first line.

    :param inputs: the number of inputs of the whole run, and the digest of their paths
    :param options: the digest of the options that affect other lines
    :param no_model: the exit code of a run without models
    """
    values = _Header(command, inputs, options, no_model, ABSENT if shard is None else shard)
    return json_text(_HEADER.values(values), unicode=False)


def model(position: int, values: Mapping[str, Any]) -> str:
    """Return the line of a model; ``values`` are its entry in the JSON report of the command."""
    return json_text(_MODEL.values((position, values)), unicode=False)


def failure(position: int, cause: Failure) -> str:
    """Return the line of an input that could not be processed."""
    return json_text(_FAILURE.values((position, cause)), unicode=False)


def end(counts: Mapping[str, int], exit_code: int) -> str:
    """
    Return the last line of a run that processed all of its inputs.

    :raises ValueError: for a count that the line does not have.
    """
    if unknown := counts.keys() - {field.name for field in _COUNTS}:
        raise ValueError(f"no field for the counts {', '.join(sorted(unknown))}")
    return json_text(_END.values({**counts, "exit_code": exit_code}), unicode=False)


def early_end(exit_code: int) -> str:
    """Return the last line of a run that ended before all inputs were processed."""
    return json_text(_END.values({"exit_code": exit_code}), unicode=False)
