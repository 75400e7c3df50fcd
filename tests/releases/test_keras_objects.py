"""Serialized objects are read and written in the forms of all releases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policytool.releases import keras_objects
from policytool.support.errors import SpellingError

if TYPE_CHECKING:
    from policytool.support.text.jsontext import Json

TEXTS = st.text(max_size=8)
CONFIGS: st.SearchStrategy[Json] = st.one_of(
    st.none(), TEXTS, st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=3)
)


@given(TEXTS, CONFIGS, st.none() | TEXTS, st.none() | TEXTS)
def test_written_objects_are_read_unchanged(
    class_name: str, config: Json, module: str | None, name: str | None
) -> None:
    serialized = keras_objects.KerasObject(
        class_name=class_name, config=config, module=module, registered_name=name
    )
    assert keras_objects.read(keras_objects.full(module, class_name, config, name)) == serialized
    assert keras_objects.read(keras_objects.short(class_name, config)) == keras_objects.KerasObject(
        class_name=class_name, config=config
    )


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("relu", "relu"),
        ({"class_name": "function", "config": "relu", "registered_name": "function"}, "relu"),
        ({"class_name": "function", "config": {}}, None),
        ({"class_name": "ReLU", "config": {"name": "relu"}}, "ReLU"),
        ({"class_name": "package>Scale", "config": {}}, "package>Scale"),
        ({"class_name": {"class_name": "ReLU"}, "config": {}}, None),
        ({"config": {}}, None),
        (["relu"], None),
        (None, None),
    ],
)
def test_name_of_an_object_is_the_name_that_releases_look_up(
    value: object, name: str | None
) -> None:
    assert keras_objects.name_of(value) == name


def test_own_class_omits_the_package() -> None:
    """HDF5 and SavedModels of Keras 2 write the package before the class."""
    assert keras_objects.require({"class_name": "package>Scale"}).own_class == "Scale"


def test_value_without_a_class_name_is_rejected() -> None:
    """Such a value is not a serialized object."""
    with pytest.raises(SpellingError, match="class name"):
        keras_objects.require({"class_name": 1, "config": {}})
