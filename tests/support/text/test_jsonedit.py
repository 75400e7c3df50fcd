"""JSON text edited in place: what changes is right, and nothing else changes."""

from __future__ import annotations

import copy
import json
import math
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.support import limits
from policytool.support.text import jsonedit, jsontext
from policytool.support.text.jsontext import ABSENT
from tests.helpers.cases import for_each
from tests.helpers.marks import ALONE
from tests.helpers.places import places, value_at

if TYPE_CHECKING:
    from policytool.support.text.jsontext import Json

BLANKS = st.text(" \t\n\r", max_size=2)
KEYS = st.sampled_from(["a", "b", "dtype", "", "a/b", "m~n", "0", "é", '"', "\\"]) | st.text(
    max_size=3
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
NUMBERS = st.sampled_from(
    [
        "1e-07",
        "0.10000000149011612",
        "1E5",
        "-0.0",
        "1.50",
        "NaN",
        "-Infinity",
        "12345678901234567890123",
    ]
)


@st.composite
def texts(draw: st.DrawFn, depth: int = 3) -> str:
    """Return JSON text with unusual white space, escapes, numbers and repeated keys."""
    before, after = draw(BLANKS), draw(BLANKS)
    kind = draw(
        st.sampled_from(["scalar", "number", "object", "array"] if depth else ["scalar", "number"])
    )
    if kind == "number":
        return before + draw(NUMBERS) + after
    if kind == "scalar":
        return before + json.dumps(draw(SCALARS), ensure_ascii=draw(st.booleans())) + after
    inner = [draw(texts(depth - 1)) for _ in range(draw(st.integers(0, 4)))]
    if kind == "array":
        return f"{before}[{','.join(inner) or draw(BLANKS)}]{after}"
    members = [
        f"{draw(BLANKS)}{json.dumps(draw(KEYS), ensure_ascii=draw(st.booleans()))}"
        f"{draw(BLANKS)}:{value}"
        for value in inner
    ]
    return f"{before}{{{','.join(members) or draw(BLANKS)}}}{after}"


def _overlaps(one: tuple[str | int, ...], other: tuple[str | int, ...]) -> bool:
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


@st.composite
def edits(draw: st.DrawFn, original: Json) -> tuple[list[jsonedit.Change], Json]:
    """Return edits of a value that do not overlap, and the value as it is with them."""
    wanted = copy.deepcopy(original)
    taken: list[tuple[str | int, ...]] = []
    changes: list[jsonedit.Change] = []
    for steps in draw(
        st.lists(st.sampled_from([steps for steps, _ in places(original)]), max_size=5)
    ):
        here = value_at(original, steps)
        kind = draw(st.sampled_from(["replace", "remove", "add"]))
        place = (*steps, draw(KEYS)) if kind == "add" else steps
        if any(_overlaps(place, other) for other in taken):
            continue
        if kind == "add" and isinstance(here, dict) and place[-1] not in here:
            new = draw(SCALARS)
            value_at(wanted, steps)[place[-1]] = new
            changes.append((jsontext.pointer(*place), ABSENT, new))
        elif kind == "remove" and steps and isinstance(steps[-1], str):
            del value_at(wanted, steps[:-1])[steps[-1]]
            changes.append((jsontext.pointer(*steps), here, ABSENT))
        elif kind == "replace":
            value: Any = draw(
                SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(KEYS, SCALARS, max_size=2)
            )
            if steps:
                value_at(wanted, steps[:-1])[steps[-1]] = value
            else:
                wanted = value
            changes.append((jsontext.pointer(*steps), here, value))
        else:
            continue
        taken.append(place)
    return changes, wanted


@given(st.data())
def test_edited_text_reads_as_the_edited_value(data: st.DataObject) -> None:
    text = data.draw(texts())
    changes, expected = data.draw(edits(json.loads(text)))
    assert jsonedit.same(json.loads(jsonedit.apply(text, changes)), expected)


@given(texts())
def test_no_edit_changes_nothing(text: str) -> None:
    value = json.loads(text)
    assert jsonedit.apply(text, []) == text
    assert jsonedit.apply(text, [("", value, value)]) == text


@given(texts(), texts(), texts())
def test_text_around_an_edit_is_unchanged(left: str, right: str, old: str) -> None:
    text = f'{{"left":{left},"edited":{old}, "right" :{right}}}'
    bare = old.strip(" \t\n\r")
    edited = jsonedit.apply(text, [("/edited", json.loads(old), "new")])
    before, after = old.split(bare, 1)
    expected = f'{{"left":{left},"edited":{before}"new"{after}, "right" :{right}}}'
    assert edited in {expected, text}


@for_each(
    ("text", "edit", "edited"),
    [
        ('{"a": 1e-07, "b": 2}', ("/b", 2, None), '{"a": 1e-07, "b": null}'),
        ('{"a":1,"b":2}', ("/b", 2, {"x": [1, 2]}), '{"a":1,"b":{"x":[1,2]}}'),
        ('{"a": 1, "b": 2}', ("/b", 2, {"x": [1, 2]}), '{"a": 1, "b": {"x": [1, 2]}}'),
        ('{"a": 1}', ("/b", ABSENT, 2), '{"a": 1, "b": 2}'),
        ('{"a":1}', ("/b", ABSENT, 2), '{"a":1,"b":2}'),
        ("{}", ("/b", ABSENT, 2), '{"b": 2}'),
        ('{"a":{ }}', ("/a/b", ABSENT, 2), '{"a":{"b":2 }}'),
        ('{\n  "a": 1\n}', ("/b", ABSENT, 2), '{\n  "a": 1,\n  "b": 2\n}'),
        ('{\n  "a": 1,\n  "c": 3\n}', ("/b", ABSENT, 2), '{\n  "a": 1,\n  "c": 3,\n  "b": 2\n}'),
        ('{"a": 1, "b": 2, "c": 3}', ("/a", 1, ABSENT), '{"b": 2, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', ("/b", 2, ABSENT), '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', ("/c", 3, ABSENT), '{"a": 1, "b": 2}'),
        ('{"a": 1}', ("/a", 1, ABSENT), "{}"),
        ('{"a": 1, "a": 2}', ("/a", 2, 3), '{"a": 1, "a": 3}'),
        ('{"a": 1, "b": 0, "a": 2}', ("/a", 2, ABSENT), '{"b": 0}'),
        ('{"a": {"x": 1}, "a": {"x": 2}}', ("/a/x", 2, 3), '{"a": {"x": 1}, "a": {"x": 3}}'),
        ('["é"]', ("/0", "é", "ü"), '["ü"]'),
        ('["\\u00e9"]', ("/0", "é", "ü"), '["\\u00fc"]'),
        ('{"a/b": {"m~n": 1}}', ("/a~1b/m~0n", 1, 2), '{"a/b": {"m~n": 2}}'),
        ("[NaN]", ("/0", math.nan, 1.5), "[1.5]"),
        (" 1 ", ("", 1, 2), " 2 "),
    ],
)
def test_edits_keep_the_style_of_the_text(text: str, edit: jsonedit.Change, edited: str) -> None:
    """Separators, indentation, escapes and repeated keys are those of the text."""
    assert jsonedit.apply(text, [edit]) == edited


def test_several_edits_of_one_object() -> None:
    """Keys that are removed side by side, all of them, and others added in the same go."""
    text = '{"a": 1, "b": 2, "c": 3}'
    assert jsonedit.apply(text, [("/a", 1, ABSENT), ("/b", 2, ABSENT)]) == '{"c": 3}'
    assert (
        jsonedit.apply(text, [("/b", 2, ABSENT), ("/c", 3, ABSENT), ("/d", ABSENT, 4)])
        == '{"a": 1, "d": 4}'
    )
    assert (
        jsonedit.apply(
            text, [("/a", 1, ABSENT), ("/b", 2, ABSENT), ("/c", 3, ABSENT), ("/d", ABSENT, 4)]
        )
        == '{"d": 4}'
    )


MISFITS: Final[tuple[list[jsonedit.Change], ...]] = (
    [("/x", 1, 2)],
    [("/x/y", ABSENT, 2)],
    [("/list/3", 1, 2)],
    [("/list/-", 1, 2)],
    [("/list/01", 2, 3)],
    [("/list/2", ABSENT, 3)],
    [("/list/0", 1, ABSENT)],
    [("/a", 2, 3)],
    [("/a", True, 3)],
    [("/a", 1.0, 3)],
    [("/a", ABSENT, 3)],
    [("/x", ABSENT, ABSENT)],
    [("/a/b", 1, 2)],
    [("a", 1, 2)],
    [("/~2", 1, 2)],
    [("/a", 1, 2), ("/a", 1, 3)],
    [("/list", [1, 2], 2), ("/list/0", 1, 3)],
    [("/list/0", 1, 3), ("/list", [1, 2], 2)],
    [("", {"a": 1, "list": [1, 2]}, ABSENT)],
    [("/x" * (limits.JSON_DEPTH.value + 1), 1, 2)],
)
"""Edits that do not fit ``{"a": 1, "list": [1, 2]}``."""


@for_each("edits", MISFITS, ids=str)
def test_edits_that_do_not_fit_are_rejected(edits: list[jsonedit.Change]) -> None:
    """The pointer is invalid, the value differs, or edits are nested."""
    with pytest.raises(jsonedit.EditError):
        jsonedit.apply('{"a": 1, "list": [1, 2]}', edits)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a": 1',
        '{"a": 1]',
        '{"a" 1}',
        '{"a": 1} x',
        "[" * 100_000,
        '{"a":1,',
        '{"a": 1, "b": ' + "9" * 5000 + "}",
    ],
    ids=lambda text: text[:9],
)
def test_invalid_json_is_rejected(text: str) -> None:
    """Every invalid text gives the same type of error."""
    with pytest.raises(jsonedit.EditError):
        jsonedit.apply(text, [("/a", 1, 2), ("/0/0", 1, 2)])


@ALONE
def test_edits_of_a_large_config_are_fast() -> None:
    """The config has a megabyte and a thousand edits, as EfficientNetV2-L has."""
    layers = [
        {
            "class_name": "Dense",
            "config": {"name": f"dense_{index}", "dtype": "float16", "padding": "x" * 900},
        }
        for index in range(1000)
    ]
    text = json.dumps({"config": {"layers": layers}})
    changes: list[jsonedit.Change] = [
        (f"/config/layers/{index}/config/dtype", "float16", "float32") for index in range(1000)
    ]
    start = time.process_time()
    edited = jsonedit.apply(text, changes)
    assert time.process_time() - start < 2  # reading the text again for each change takes minutes
    assert edited == text.replace("float16", "float32")
