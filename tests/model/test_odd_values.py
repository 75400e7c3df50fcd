"""
Values of other types than Keras writes, anywhere in a config, are read around or refused in a
sentence; audit and migrate never end in a traceback.

A model from a stranger may hold a list where every release writes a name, or an integer that no
float can count.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import policytool
from policytool.support.errors import ModelFileError
from policytool.support.text.jsontext import number, place, pointer, text_at
from tests.helpers.marks import THOROUGH, examples
from tests.helpers.paths import FIXTURES
from tests.helpers.places import places

HUGE: Final = 10**400
"""More than a float counts to; Python's JSON reads it all the same."""

SOURCES: Final = (
    "tf2.1/exp_per_layer.json",
    "tf2.12/global_mixed_bfloat16.json",
    "tf2.12/mha_mixed.json",
    "keras3.15/global_mixed_float16.json",
    "tf_keras2.21/rnn_mixed.json",
)

ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    -1,
    2.5,
    HUGE,
    "",
    "float16",
    "\ud800",
    [],
    {},
    [[]],
    {"class_name": 3, "config": 4},
    {"class_name": "Lambda", "config": {}},
)


def audited(config: Any, path: Path) -> None:
    """
    Audit a config and plan its migration; an error is allowed only if it is a message of
    policytool.
    """
    path.write_text(json.dumps(config), encoding="utf-8")
    try:
        policytool.audit(path, target=["keras3", "tf2.2"], device="cpu", weights=True)
        policytool.migrate(path, preview=True)
        policytool.migrate(path, target="keras3.3", preview=True)
        policytool.migrate(path, target="tf_keras", preview=True)
    except ModelFileError:
        return


def changed(source: str, where: str, value: object) -> Any:
    """Return a fixture's config in which one value is replaced or added."""
    config = json.loads((FIXTURES / source).read_text(encoding="utf-8"))
    holder, key = place(config, where)
    holder[key] = value
    return config


@pytest.mark.parametrize(
    ("source", "where", "value"),
    [
        ("keras3.15/global_mixed_float16.json", "/config/layers/1/class_name", ["Dense"]),
        (
            "keras3.15/global_mixed_float16.json",
            "/config/layers/1/config/dtype/config/name",
            ["float16"],
        ),
        (
            "tf2.12/global_mixed_bfloat16.json",
            "/config/layers/2/config/kernel_initializer/class_name",
            [[]],
        ),
        (
            "tf2.12/global_mixed_bfloat16.json",
            "/config/layers/2/config/bias_initializer/class_name",
            {},
        ),
        ("tf2.12/global_mixed_bfloat16.json", "/config/layers/2/config/epsilon", -HUGE),
        (
            "tf2.12/global_mixed_bfloat16.json",
            "/config/layers/3/config/dtype",
            {"class_name": [], "config": {}, "shared_object_id": 5},
        ),
        ("tf2.1/exp_per_layer.json", "/config/layers/2/config/dtype/config/loss_scale", HUGE),
        (
            "tf2.1/exp_per_layer.json",
            "/config/layers/3/config/dtype/config/loss_scale/config/loss_scale_value",
            HUGE,
        ),
        ("tf2.12/mha_mixed.json", "/config/layers/2/name", {"class_name": 3, "config": 4}),
        ("tf2.12/mha_mixed.json", "/config/output_layers", 3),
    ],
    ids=lambda value: str(value)[:80],
)
def test_value_of_another_type_causes_no_internal_error(
    source: str, where: str, value: object, tmp_path: Path
) -> None:
    """Values of unexpected types that caused exceptions in earlier versions cause none."""
    audited(changed(source, where, value), tmp_path / "odd.json")


def pointers(source: str) -> tuple[str, ...]:
    """Return the pointer of each item in a config."""
    config = json.loads((FIXTURES / source).read_text(encoding="utf-8"))
    return tuple(pointer(*steps) for steps, _ in places(config) if steps)


PLACES: Final = {source: pointers(source) for source in SOURCES}


@THOROUGH
@settings(max_examples=examples(150))
@given(data=st.data())
def test_odd_value_at_any_place_gives_findings_or_an_error(data: st.DataObject) -> None:
    """
    An unexpected value at any place of a config leads to findings or to an error message, and not
    to a traceback.
    """
    source = data.draw(st.sampled_from(SOURCES))
    config = changed(
        source, data.draw(st.sampled_from(PLACES[source])), data.draw(st.sampled_from(ODD))
    )
    with TemporaryDirectory() as directory:
        audited(config, Path(directory) / "odd.json")


def test_booleans_and_huge_integers_are_not_numbers() -> None:
    assert [number(value) for value in (3, 2.5, True, "3", None, HUGE)] == [
        3.0,
        2.5,
        None,
        None,
        None,
        None,
    ]
    assert [text_at({"name": value}, "name") for value in ("a", 1, ["a"])] == ["a", None, None]
    assert text_at({}, "name") is None
