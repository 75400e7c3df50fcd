"""YAML from untrusted sources: its values, its errors, and bounds on memory."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from policytool.support import limits
from policytool.support.text import jsonedit, yamltext
from tests.helpers.cases import for_each
from tests.helpers.marks import ALONE
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from tests.conftest import Bounded

SAMPLES: Final = sorted(FIXTURES.glob("*/*.yaml"))
VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


def parsed(text: str) -> object:
    """Return the value of a text."""
    return yamltext.parse(text).value


@for_each(
    "path",
    [path for path in SAMPLES if path.with_suffix(".json").exists()],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_yaml_of_a_model_equals_its_json(path: Path) -> None:
    """The values of ``to_yaml()`` and ``to_json()`` are equal, with tuples as lists."""
    assert parsed(path.read_text(encoding="utf-8")) == json.loads(
        path.with_suffix(".json").read_text(encoding="utf-8")
    )


@given(VALUES, st.booleans())
def test_output_of_pyyaml_is_read(value: object, flow: bool) -> None:  # noqa: FBT001
    """Every JSON value is read as PyYAML reads it, in both styles."""
    text = yaml.safe_dump(value, default_flow_style=flow, allow_unicode=not flow)
    assert jsonedit.same(yamltext.parse(text).value, yaml.safe_load(text))


@given(VALUES)
def test_aliases_are_read_as_separate_equal_values(value: object) -> None:
    """A change of one value does not affect the other."""
    result = parsed(yaml.safe_dump([value, value, {"again": value}]))
    assert isinstance(result, list)
    assert jsonedit.same(result[0], result[1])
    assert not isinstance(result[0], dict | list) or result[0] is not result[1]


@pytest.mark.parametrize("loader", ["SafeLoader", "CSafeLoader"])
def test_both_parsers_of_pyyaml_give_the_same(loader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without libyaml, PyYAML's own parser returns the same values, tags, anchors and styles."""
    text = "é: &a !!python/tuple [😀, 0x1F]\n# ü\n'ö': >\n  *a\nlast:\n- *a\n"
    monkeypatch.setattr(yaml, "CSafeLoader", getattr(yaml, loader))
    root = yamltext.compose(text)
    items, folded, last = (node for _, _, node in root.members)
    assert yamltext.node_value(root) == {"é": ["😀", 31], "ö": "*a\n", "last": [["😀", 31]]}
    assert (items.tag, items.anchor, items.flow) == ("tag:yaml.org,2002:python/tuple", "a", True)
    assert [(node.text, node.style) for node in items.items] == [("😀", None), ("0x1F", None)]
    assert [name.style for _, name, _ in root.members] == [None, "'", None]
    assert (folded.style, last.flow, last.items[0].target) == (">", False, items)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: !!python/tuple [1, 2]", {"a": [1, 2]}),
        ("a: !!python/object/apply:builtins.dict\n- b: 1\n", {"a": {"b": 1}}),
        ("- !!str 1\n- !!float 2\n", ["1", 2.0]),
        (
            "[1:30, 0x1F, 1_000, ~, yes, .inf, 1e3, 1.0e+3]",
            [90, 31, 1000, None, True, math.inf, "1e3", 1000.0],
        ),
        ("1: a\nnull: b\n", {"1": "a", "null": "b"}),
        ("a: 1\na: 2\n", {"a": 2}),
        ("a: |\n  b\n  c\n", {"a": "b\nc\n"}),
    ],
)
def test_values_follow_yaml_1_1(text: str, value: object) -> None:
    """The values are those that PyYAML reads."""
    assert parsed(text) == value


def test_repeated_keys_and_wrappers_are_reported() -> None:
    result = yamltext.parse(
        "a: 1\nb: {c: 1, c: 2}\na: !!python/object/apply:builtins.dict [{d: 1}]\n"
    )
    assert (result.repeated, result.wrappers) == (("a", "c"), ("builtins.dict",))


@ALONE
@for_each(
    ("code", "text", "says"),
    [
        ("yaml-tag", "x: 1\na: !!python/object/apply:os.system ['touch pwned']", "line 2"),
        ("yaml-tag", "a: !!python/object/new:os.system ['touch pwned']", "line 1"),
        ("yaml-tag", "a: !!python/name:os.system ''", "python/name:os.system"),
        ("yaml-tag", "a: !!python/module:os ''", "python/module:os"),
        (
            "yaml-tag",
            "a: !!python/object/apply:builtins.dict [[a, b]]",
            "wrong number of arguments",
        ),
        (
            "yaml-tag",
            "a: !!python/object/apply:builtins.dict [{}, {}]",
            "wrong number of arguments",
        ),
        ("yaml-tag", "a: !!python/object/apply:builtins.dict {args: []}", "tags for plain data"),
        ("yaml-tag", "a: !!python/tuple {b: 1}", "python/tuple"),
        ("yaml-tag", "a: 2020-01-01", "timestamp"),
        ("yaml-tag", "a: !!binary aGk=", "binary"),
        ("yaml-tag", "a: !!set {b}", "set"),
        ("yaml-tag", "a: {<<: {b: 1}}", "merge key"),
        ("invalid-yaml", "", "empty"),
        ("invalid-yaml", "a: [", "line"),
        ("invalid-yaml", "a: b: c", "line 1"),
        ("invalid-yaml", "a: \x00", "not valid YAML"),
        ("invalid-yaml", "a: *b", "is undefined"),
        ("invalid-yaml", "a: &b [*b]", "refers to itself"),
        ("invalid-yaml", "a: 1\n---\nb: 2", "several"),
        ("invalid-yaml", "? [a]\n: 1", "not a string"),
        ("invalid-yaml", f"a: {'9' * 5000}", "a number with 5000 characters"),
        ("invalid-yaml", "a: !!int x", "no int"),
        *(
            ("yaml-limit", brackets * 10_000, "nests YAML to a depth of at least 201 levels")
            for brackets in ("[", "{", "[{", "{a: [", "- ", "[\n")
        ),
        (
            "yaml-limit",
            "\n".join(f"{' ' * level}a:" for level in range(1000)),
            "nests YAML to a depth of at least 201 levels",
        ),
        (
            "yaml-limit",
            "a0: &a0 [1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 300)),
            "nests YAML to a depth of at least 201 levels",
        ),
        (
            "yaml-limit",
            "a0: &a0 [1, 1]\n"
            + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
            "aliases",
        ),
    ],
)
def test_yaml_that_no_config_contains_is_rejected(code: str, text: str, says: str) -> None:
    """The error has one sentence and a code, comes quickly, and no code is called."""
    start = time.process_time()
    with pytest.raises(yamltext.YamlError) as caught:
        yamltext.parse(text)
    assert time.process_time() - start < 2
    assert caught.value.code == code
    assert says in str(caught.value)
    assert not Path("pwned").exists()


@pytest.mark.parametrize(
    "text",
    [
        "[" * limits.JSON_DEPTH.value + "]" * limits.JSON_DEPTH.value,
        "{a: " * limits.JSON_DEPTH.value + "}" * limits.JSON_DEPTH.value,
    ],
)
def test_text_within_the_limit_is_read(text: str) -> None:
    """The depth limit is that of JSON."""
    assert (
        json.dumps(parsed(text)).count("]") + json.dumps(parsed(text)).count("}")
        == limits.JSON_DEPTH.value
    )


def test_yaml_above_the_size_limit_is_rejected(bounded: Bounded) -> None:
    """The text is rejected before it is read."""
    bounded("yaml-bytes", 4)
    with pytest.raises(
        yamltext.YamlError, match="is YAML of 5 bytes, above the yaml-bytes limit of 4 bytes"
    ):
        yamltext.parse("a: 12")
