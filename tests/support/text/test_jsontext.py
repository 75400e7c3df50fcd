"""JSON from strangers: values, bounds, duplicate keys, pointers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.support import limits
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from policytool.support.text.jsontext import Json
    from tests.conftest import Bounded

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_json_is_read_as_by_python(value: Json) -> None:
    """Text and bytes of any JSON value give this value, without repeated keys."""
    text = json.dumps(value)
    assert jsontext.parse(text) == (value, ())
    assert jsontext.parse(text.encode()) == (value, ())


@given(st.text() | st.binary())
def test_text_that_is_no_json_has_one_kind_of_error(text: str | bytes) -> None:
    """For any text, there is a value or a JsonError with a code."""
    try:
        jsontext.parse(text)
    except jsontext.JsonError as error:
        assert error.code in {"invalid-json", "json-limit"}


def _followed(value: Json, pointer: str) -> Json:
    """Resolve a JSON Pointer by the steps of RFC 6901, section 4."""
    for token in pointer.split("/")[1:]:
        step = token.replace("~1", "/").replace("~0", "~")
        value = (
            value[int(step)]
            if isinstance(value, list)
            else value[step]
            if isinstance(value, dict)
            else pytest.fail("leads nowhere")
        )
    return value


@given(st.lists(st.text() | st.integers(min_value=0, max_value=3), max_size=5))
def test_pointers_lead_to_their_value(steps: list[str | int]) -> None:
    """Pointers support steps with ``/`` and ``~``, empty steps and numbers."""
    value: Json = "found"
    for step in reversed(steps):
        value = [*([None] * step), value] if isinstance(step, int) else {step: value}
    assert _followed(value, jsontext.pointer(*steps)) == "found"


def test_pointer_spells_as_the_standard_does() -> None:
    """The examples of RFC 6901, section 5."""
    assert jsontext.pointer() == ""
    assert jsontext.pointer("foo", 0) == "/foo/0"
    assert jsontext.pointer("") == "/"
    assert jsontext.pointer("a/b") == "/a~1b"
    assert jsontext.pointer("m~n") == "/m~0n"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_depth_bound_is_exact(opening: str, closing: str) -> None:
    """As many levels as the bound are read, one more is not."""
    deepest = limits.JSON_DEPTH.value
    innermost = "1" if opening != "[" else ""
    jsontext.parse(opening * deepest + innermost + closing * deepest)
    with pytest.raises(jsontext.JsonError) as caught:
        jsontext.parse(opening * (deepest + 1) + innermost + closing * (deepest + 1))
    assert caught.value.code == "json-limit"


@pytest.mark.parametrize("depth", [1_000, 100_000, 1_000_000])
def test_depth_above_the_limit_of_python_is_a_limit_error(depth: int) -> None:
    """Text that the parser of Python cannot read is also above the limit of policytool."""
    with pytest.raises(jsontext.JsonError) as caught:
        jsontext.parse("[" * depth + "]" * depth)
    assert caught.value.code == "json-limit"


def test_brackets_in_strings_are_no_depth() -> None:
    """A text full of brackets is not deep."""
    value = {"text": "[{" * 1000}
    assert jsontext.parse(json.dumps(value)) == (value, ())


def test_size_bound_counts_before_parsing(
    monkeypatch: pytest.MonkeyPatch, bounded: Bounded
) -> None:
    bounded("json-bytes", 10)
    assert jsontext.parse("[1,2,3,4]")[0] == [1, 2, 3, 4]
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("it was parsed"))
    with pytest.raises(
        jsontext.JsonError,
        match="is JSON of 11 bytes, above the json-bytes limit of 10 bytes; raise the limit with "
        "--limit json-bytes=11",
    ):
        jsontext.parse("[1,2,3,4,5]")


@pytest.mark.parametrize(
    ("text", "value", "repeated"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}, ("a",)),
        ('{"a": 1, "a": 2, "a": 3}', {"a": 3}, ("a",)),
        ('[{"b": 1, "b": 1}, {"a": 1, "a": 2}]', [{"b": 1}, {"a": 2}], ("b", "a")),
        ('{"a": {"a": 1}}', {"a": {"a": 1}}, ()),
        ('[{"a": 1}, {"a": 1}]', [{"a": 1}, {"a": 1}], ()),
    ],
)
def test_repeated_keys_are_reported(text: str, value: Json, repeated: tuple[str, ...]) -> None:
    """The last value counts, and each repeated key of an object is listed once."""
    assert jsontext.parse(text) == (value, repeated)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value at line 1, column 1"),
        ('{"a": \n 1,}', "at line 2"),
        (b'{"a": "\xff"}', "is not UTF-8 text (byte 7)"),
        ("9" * 5000, "contains an integer with more than 4300 digits"),
    ],
)
def test_errors_contain_the_position(text: str | bytes, words: str) -> None:
    """The message names the problem and its line and column."""
    with pytest.raises(jsontext.JsonError) as caught:
        jsontext.parse(text)
    assert caught.value.code == "invalid-json"
    assert words in str(caught.value)
