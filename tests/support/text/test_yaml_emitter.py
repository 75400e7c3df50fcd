"""YAML text written again with edits: values, tags, anchors and the order of keys."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from policytool.formats.rewriting import WriteError
from policytool.formats.yaml_architecture import apply
from policytool.support.text import jsonedit, yamltext
from policytool.support.text.jsonedit import EditError
from policytool.support.text.jsontext import ABSENT
from tests.helpers.cases import for_each
from tests.helpers.marks import ALONE, THOROUGH, examples
from tests.helpers.paths import FIXTURES
from tests.support.text.test_jsonedit import MISFITS, edits

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.support.text.jsontext import Json
    from tests.conftest import Bounded

SAMPLES: Final = sorted(FIXTURES.glob("*/*.yaml"))
WORDS = st.sampled_from(
    [
        "a",
        "b",
        "dtype",
        "0",
        "é",
        "a/b",
        "m~n",
        "",
        "null",
        "y",
        "1.5",
        "- x",
        "a: b",
        "#",
        "😀",
        "\x85",
        "tab\t",
        "two\nlines",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
NUMBERS = st.sampled_from(
    ["0x1F", "1_000", "1:30", "1.0e-07", ".5", "-.inf", ".NaN", "+1", "~", "Yes", "OFF"]
)


def spelled(value: Json, quote: str | None = None) -> str:
    """Return a scalar as PyYAML spells it in brackets."""
    text = yaml.safe_dump([value], default_flow_style=True, default_style=quote, width=10**6)
    return text.strip().removeprefix("[").removesuffix("]")


def quoted(text: str) -> str:
    """Return text as a YAML scalar in double quotes."""
    return spelled(text, '"')


@st.composite
def scalars(draw: st.DrawFn) -> str:
    """Return a scalar in one of its spellings."""
    kind = draw(st.sampled_from(["value", "number", "single", "plain", "tagged"]))
    word = draw(WORDS)
    if kind == "number":
        return draw(NUMBERS)
    if kind == "single" and word.isprintable():
        return "'" + word.replace("'", "''") + "'"
    if kind == "plain":
        return draw(st.sampled_from(["float32", "mixed_float16", "two words", "a-b"]))
    if kind == "tagged":
        return f"!!str {quoted(word)}"
    return spelled(draw(SCALARS))


@st.composite
def flows(draw: st.DrawFn, depth: int = 2) -> str:
    """Return a value in flow style, with odd white space."""
    kind = draw(st.sampled_from(["scalar", "object", "array"] if depth else ["scalar"]))
    if kind == "scalar":
        return draw(scalars())
    space = draw(st.sampled_from(["", " ", "  "]))
    inner = [draw(flows(depth - 1)) for _ in range(draw(st.integers(0, 3)))]
    if kind == "array":
        tag = draw(st.sampled_from(["", "!!python/tuple ", "!!seq "]))
        return f"{tag}[{space}{f'{space}, '.join(inner)}{space}]"
    members = [f"{quoted(draw(WORDS))}: {item}" for item in inner]
    return f"{{{space}{f'{space}, '.join(members)}{space}}}"


@st.composite
def blocks(draw: st.DrawFn, depth: int = 3, indent: int = 0) -> str:
    """Return a value as YAML after a key or a dash, on the same line or on lines below it."""
    kind = draw(st.sampled_from(["flow", "mapping", "sequence", "literal"] if depth else ["flow"]))
    comment = draw(st.sampled_from(["", "", "  # a note: yes?"]))
    if kind == "flow":
        return f" {draw(flows())}{comment}\n"
    margin = " " * indent
    if kind == "literal":
        return f" |\n{margin}  some\n{margin}  text\n"
    tag = draw(st.sampled_from(["", " !!python/tuple" if kind == "sequence" else " !!map"]))
    lines = []
    for _ in range(draw(st.integers(1, 3))):
        lead = draw(st.sampled_from(["", f"{margin}# between\n", "\n"]))
        inner = draw(blocks(depth - 1, indent + 2))
        name = draw(st.sampled_from(["a", "b", "dtype", "'c d'", '"0"', "é"]))
        lines.append(f"{lead}{margin}{f'{name}:' if kind == 'mapping' else '-'}{inner}")
    return f"{tag}{comment}\n{''.join(lines)}"


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Return YAML text as people and releases spell it."""
    text = (
        draw(st.sampled_from(["", "---\n", "# a model\n"]))
        + draw(blocks()).lstrip(" ")
        + draw(st.sampled_from(["", "\n", "# end\n"]))
    )
    return text.replace("\n", "\r\n") if draw(st.booleans()) and "|" not in text else text


def parsed(text: str) -> Json:
    """Return the value of a text."""
    return yamltext.parse(text).value


def events(text: str) -> list[tuple[object, ...]]:
    """Return what the text says, without its layout: of each event the tag, anchor and value."""
    return [
        (
            type(event).__name__,
            getattr(event, "anchor", None),
            getattr(event, "tag", None),
            getattr(event, "value", None),
        )
        for event in yaml.parse(text, Loader=yaml.CSafeLoader)
    ]


@THOROUGH
@settings(max_examples=examples(300))
@given(st.data())
def test_edited_text_reads_as_the_edited_value(data: st.DataObject) -> None:
    text = data.draw(texts())
    changes, expected = data.draw(edits(parsed(text)))
    assert jsonedit.same(parsed(apply(text, changes)), expected)


@given(texts())
def test_no_edit_changes_nothing(text: str) -> None:
    value = parsed(text)
    assert apply(text, []) == text
    assert apply(text, [("", value, value)]) == text


@THOROUGH
@settings(max_examples=examples(300))
@given(texts(), texts(), st.sampled_from(["", "'", '"']))
def test_unedited_values_keep_tags_keys_and_notation(left: str, right: str, quote: str) -> None:
    """The parser finds the same known and unknown keys in the same order around an edited value."""
    head, tail = (
        f"{key}:\n  {_indented(text).replace('1:30', '130')}\n"  # needs a tag in brackets
        for key, text in (("left", left), ("right", right))
    )
    before = f"{head}edited: {quote}float32{quote}   # why\n{tail}"
    after = f"{head}edited: {quote}mixed_float16{quote}   # why\n{tail}"
    assert events(apply(before, [("/edited", "float32", "mixed_float16")])) == events(after)


@THOROUGH
@for_each("path", SAMPLES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_files_of_releases_keep_their_lines(path: Path) -> None:
    """PyYAML wrote these files, and their line breaks stay. A new key comes last."""
    text = path.read_text(encoding="utf-8")
    assert apply(text, [("/mine", ABSENT, "kept")]) == f"{text}mine: kept\n"


def _indented(text: str) -> str:
    return (
        text.removeprefix("---\n")
        .removeprefix("---\r\n")
        .replace("\r\n", "\n")
        .replace("\n", "\n  ")
    )


CONFIG = """\
config:
  layers:
  - class_name: Dense
    config:
      batch_input_shape: !!python/tuple
      - null
      - 6
      dtype:
        class_name: Policy
        config:
          name: mixed_float16
      name: dense_a  # the first
  - class_name: Dense
    config: {dtype: float32, name: 'dense_b', shape: !!python/tuple [null, 6]}
"""


@pytest.mark.parametrize(
    ("edit", "old", "new"),
    [
        (
            (
                "/config/layers/0/config/dtype",
                {"class_name": "Policy", "config": {"name": "mixed_float16"}},
                "mixed_float16",
            ),
            "dtype:\n        class_name: Policy\n        config:\n          name: mixed_float16\n",
            "dtype: mixed_float16\n",
        ),
        (
            ("/config/layers/1/config/dtype", "float32", {"class_name": "Policy"}),
            "{dtype: float32, name: 'dense_b', shape: !!python/tuple [null, 6]}",
            (
                "{dtype: {class_name: Policy}, name: 'dense_b', shape: !!python/tuple [\n"
                "        null, 6]}"
            ),
        ),
        (("/config/layers/1/config/name", "dense_b", "head"), "'dense_b'", "'head'"),
        (("/config/layers/0/config/name", "dense_a", "1.5"), "name: dense_a", "name: '1.5'"),
        (("/config/layers/0/config/batch_input_shape/1", 6, 7), "      - 6", "      - 7"),
        (("/config/layers/1/config/shape/1", 6, 1e-07), "6]", "1.0e-07]"),
        (
            ("/config/layers/0/config/name", "dense_a", ABSENT),
            "      name: dense_a\n",
            "",
        ),
        (("/config/layers/1/config/name", "dense_b", ABSENT), " name: 'dense_b',", ""),
        (("/config/layers/1/config/dtype", "float32", ABSENT), "dtype: float32, ", ""),
        (
            ("/config/layers/0/autocast", ABSENT, False),
            "      name: dense_a\n",
            "      name: dense_a\n    autocast: false\n",
        ),
        (
            ("/config/layers/1/config/units", ABSENT, 3),
            "[null, 6]}",
            "[null, 6], units: 3}",
        ),
        (
            ("/config/layers/0/config/dtype/config/name", "mixed_float16", ABSENT),
            "\n          name: mixed_float16\n",
            " {}\n",
        ),
    ],
)
def test_edits_keep_the_style_of_the_text(edit: jsonedit.Change, old: str, new: str) -> None:
    """Tags, tuples, quotes, brackets and line ends are kept; comments are lost."""
    plain = CONFIG.replace("  # the first", "")
    assert plain.count(old) == 1
    assert apply(CONFIG, [edit]) == plain.replace(old, new)
    windows = CONFIG.replace("\n", "\r\n")
    assert apply(windows, [edit]) == plain.replace(old, new).replace("\n", "\r\n")


WRAPPED = """\
axis: !!python/object/apply:tensorflow.python.training.tracking.data_structures.ListWrapper
- - 1
config: !!python/object/apply:builtins.dict
- dtype: float32
"""


def test_values_in_wrappers_of_python_objects_are_edited() -> None:
    """A dict that TF 2.2 wrote as a call of ``dict`` is an example."""
    assert apply(
        WRAPPED, [("/config/dtype", "float32", "float16"), ("/axis/0", 1, 3)]
    ) == WRAPPED.replace("float32", "float16").replace("- 1", "- 3")


ALIASED = (
    "one: &id001 {dtype: float32, name: x}\ntwo: *id001\nthree:\n- *id001\n- &id002 [1, *id001]\n- "
    "*id002\n"
)
VALUE: dict[str, Any] = {"dtype": "float32", "name": "x"}


@pytest.mark.parametrize(
    ("changes", "edited"),
    [
        (
            [("/two/dtype", "float32", "float16")],
            ALIASED.replace("two: *id001", "two: {dtype: float16, name: x}"),
        ),
        ([("/two", VALUE, 1)], ALIASED.replace("two: *id001", "two: 1")),
        (
            [("/one/dtype", "float32", "float16")],
            ALIASED.replace("*id001", "{dtype: float32, name: x}").replace("float32", "float16", 1),
        ),
        (
            [("/one", VALUE, 1)],
            ALIASED.replace("two: *id001", "two: &id001 {dtype: float32, name: x}").replace(
                "one: &id001 {dtype: float32, name: x}", "one: 1"
            ),
        ),
        (
            [("/three/2/1/dtype", "float32", "float16")],
            ALIASED.replace("- *id002", "- [1, {dtype: float16, name: x}]"),
        ),
        (
            [("/one", VALUE, ABSENT)],
            ALIASED.replace("one: ", "two: ").replace("two: *id001\n", ""),
        ),
        (
            [("/one/dtype", "float32", "half"), ("/two/dtype", "float32", "half")],
            ALIASED.replace("float32", "half").replace(
                "three:\n- *id001\n- &id002 [1, *id001]",
                "three:\n- {dtype: float32, name: x}\n- &id002 [1, {dtype: float32, name: x}]",
            ),
        ),
    ],
)
def test_an_edit_reaches_one_place_of_a_shared_value(
    changes: list[jsonedit.Change], edited: str
) -> None:
    """
    Whichever of the places is edited, the others keep what they have; an alias stays if both of its
    places hold the same, and is written out if not.
    """
    assert apply(ALIASED, changes) == edited


@THOROUGH
@settings(max_examples=examples(300))
@given(st.data())
def test_edits_of_values_that_share_by_aliases_read_as_the_edited_value(
    data: st.DataObject,
) -> None:
    """PyYAML writes anchors for objects that occur twice; an edit affects one occurrence."""
    leaf = data.draw(
        st.dictionaries(st.sampled_from(["a", "b", "dtype", "c d"]), SCALARS, max_size=3)
        | st.lists(SCALARS, max_size=3)
    )
    inner = [leaf, {"x": leaf, "y": 1}]
    text = yaml.safe_dump(
        {"a": inner, "b": leaf, "c": [inner, inner[1], leaf]},
        default_flow_style=data.draw(st.sampled_from([None, True, False])),
    )
    changes, expected = data.draw(edits(parsed(text)))
    assert jsonedit.same(parsed(apply(text, changes)), expected)


@THOROUGH
@settings(max_examples=examples(200))
@given(
    st.dictionaries(WORDS, SCALARS | st.lists(SCALARS, max_size=3).map(tuple), max_size=3),
    st.sampled_from([None, True, False]),
)
def test_anchors_and_tuples_around_an_edit_equal_those_of_pyyaml(
    leaf: dict[str, object],
    flow: bool | None,  # noqa: FBT001
) -> None:
    """An edited text equals the text that PyYAML writes for the changed value."""
    inner = ([leaf, leaf], {"x": leaf, "edited": 1}, (leaf, 2.5))
    before, after = (
        yaml.dump([inner, {"edited": text}, inner, leaf], default_flow_style=flow)
        for text in ("float32", "mixed_float16")
    )
    assert apply(before, [("/1/edited", "float32", "mixed_float16")]) == after


@pytest.mark.parametrize(
    ("pointer", "edited"),
    [
        ("/one/0", "one: &a {0} [3, 2]\ntwo: {0} [1, 2]\n"),
        ("/two/0", "one: &a {0} [1, 2]\ntwo: {0} [3, 2]\n"),
    ],
)
def test_expanded_shared_value_keeps_its_tag(pointer: str, edited: str) -> None:
    """A shared tuple is a tuple at both places."""
    text = "one: &a !!python/tuple [1, 2]\ntwo: *a\n"
    assert apply(text, [(pointer, 1, 3)]) == edited.format("!!python/tuple")


def test_redefined_anchor_refers_to_the_right_value() -> None:
    """A later anchor may have the same name, and expanded values do not change the reference."""
    text = "x: &x [&a 1, 5]\ny: &a 2\nz: *x\nlast: *a\n"
    assert apply(text, [("/x", [1, 5], ABSENT)]) == "y: &a 2\nz: &x [&a 1, 5]\nlast: &a 2\n"
    assert apply(text, [("/z/1", 5, 6)]) == text.replace("*x", "[&a 1, 6]").replace("*a", "&a 2")


@pytest.mark.parametrize(
    ("text", "edit", "edited"),
    [
        ("? a\n: 1\n", ("/b", ABSENT, 2), "a: 1\nb: 2\n"),
        ("[a: 1]", ("/0/b", ABSENT, 2), "[{a: 1, b: 2}]\n"),
        ("{? a : 1, b: 2}", ("/b", 2, ABSENT), "{a: 1}\n"),
        ("--- # mine\na: 1\n...\n", ("/a", 1, 2), "a: 2\n"),
        ("%YAML 1.1\n--- !!map\na: 1\n", ("/a", 1, 2), "!!map\na: 2\n"),
        ("a: &k x\n*k : 1\n", ("/x", 1, 2), "a: &k x\n*k: 2\n"),
        (
            "a: [1:30, b, ! c, !!int '5']\n",
            ("/a/1", "b", 2),
            "a: [!!int '1:30', 2, ! 'c', !!int '5']\n",
        ),
        ("a: 1\na: 2\nb: {a: 0x10, a: 3}\n", ("/a", 2, 4), "a: 1\na: 4\nb: {a: 0x10, a: 3}\n"),
        ("1: a\nnull: b\n", ("/1", "a", "c"), "1: c\nnull: b\n"),
        ("a: café\nb: 1\n", ("/b", 1, "é"), 'a: "caf\\xE9"\nb: "\\xE9"\n'),
    ],
    ids=[
        "question mark",
        "pair",
        "question mark in brackets",
        "document marks",
        "directive",
        "alias as a key",
        "tags of scalars",
        "keys that stand twice",
        "keys that are no text",
        "letters beyond ASCII",
    ],
)
def test_forms_that_no_release_writes_are_edited_too(
    text: str, edit: jsonedit.Change, edited: str
) -> None:
    """The value is the edited one, in the nearest form that PyYAML writes."""
    assert apply(text, [edit]) == edited


@pytest.mark.parametrize(
    ("after", "says"),
    [
        ("\ud800", "not valid YAML"),
        (json.loads("[" * 201 + "]" * 201), "levels"),
        ("x" * 200, "yaml-bytes"),
    ],
    ids=["lone surrogate", "depth", "size"],
)
def test_text_that_cannot_be_read_back_is_rejected(
    after: Json, says: str, bounded: Bounded
) -> None:
    """A text that is not readable as the edited value is never returned."""
    bounded("yaml-bytes", 1000 if says != "yaml-bytes" else 200)
    with pytest.raises(WriteError, match=says) as caught:
        apply("a: 1\n", [("/a", 1, after)])
    assert caught.value.code == "not-rewritable"


@for_each("wrong", MISFITS, ids=str)
def test_edits_that_do_not_fit_are_rejected(wrong: list[jsonedit.Change]) -> None:
    """The pointer is invalid, the value differs, or edits are nested."""
    with pytest.raises(EditError):
        apply("a: 1\nlist: [1, 2]\n", wrong)


@pytest.mark.parametrize(
    "text", ["", "{", "a: 1]", "a: *b", "a: !!python/name:os.system ''", "a: 1\n---\nb: 1\n"]
)
def test_invalid_yaml_is_rejected(text: str) -> None:
    """Every invalid text gives the same type of error."""
    with pytest.raises(EditError):
        apply(text, [("/a", 1, 2)])


@THOROUGH
@ALONE
def test_many_edits_and_aliases_are_fast() -> None:
    """
    The text has a thousand edits and a thousand aliases, which are looked up without a search.
    """
    lines = [
        (
            f"- config: {{dtype: float16, name: dense_{index}}}\n  empty: "
            f"{'&id001 {}' if not index else '*id001'}\n"
        )
        for index in range(1000)
    ]
    text = "layers:\n" + "".join(lines)
    changes: list[jsonedit.Change] = [
        (f"/layers/{index}/config/dtype", "float16", "float32") for index in range(1000)
    ]
    start = time.process_time()
    edited = apply(text, changes)
    assert time.process_time() - start < 3
    assert edited == text.replace("float16", "float32")
