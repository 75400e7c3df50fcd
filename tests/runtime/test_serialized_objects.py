"""Reading and writing serialized objects in the child process."""

from __future__ import annotations

from typing import Any

import pytest

from policytool.runtime import library

LOSS = {"class_name": "Huber", "config": {"delta": 2.0}}
TUPLE = {"class_name": "__tuple__", "items": [1, 2]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("mse", ("mse", None)),
        (LOSS, ("Huber", {"delta": 2.0})),
        ({"class_name": "function", "config": "mse"}, ("mse", None)),
        ({"class_name": "package>Loss", "config": "loss"}, ("loss", None)),
        ({"config": {}}, (None, {})),
        (None, (None, None)),
    ],
)
def test_function_is_looked_up_by_config_or_name(value: Any, expected: Any) -> None:
    """An object is looked up by its class; a string is the name."""
    assert library.name_and_config(value) == expected


@pytest.mark.parametrize("value", [None, "Dense", [], {}, {"class_name": {}}])
def test_other_values_have_no_class(value: Any) -> None:
    assert library.class_of(value) is None
    assert library.items_of(value) is value


def test_serialized_tuple_is_read_as_its_items() -> None:
    """A serialized tuple is read as its items, as Keras 3 writes weights of losses."""
    assert library.items_of(TUPLE) == [1, 2]
    assert library.is_serialized(TUPLE)
    assert not library.is_serialized({"a": LOSS})


def test_an_object_gets_another_config() -> None:
    changed = library.with_config(LOSS, {"delta": 1.0})
    assert library.config_of(changed) == {"delta": 1.0}
    assert library.config_of(LOSS) == {"delta": 2.0}


@pytest.mark.parametrize("dtype", ["float16", None, {"class_name": "Policy"}])
def test_only_mixed_policies_become_dicts(dtype: Any) -> None:
    """All releases read other policies as dtypes."""
    assert library.with_policy_dict(dtype) is dtype
    mixed = library.with_policy_dict("mixed_float16")
    assert library.class_of(mixed) == "Policy"
