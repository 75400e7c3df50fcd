"""A ``keras_metadata.pb`` without the SavedModel around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.model.tree import MODEL_CLASSES
from policytool.support.errors import ModelFileError
from tests.contracts.format_contract import FormatContract
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SAMPLES: Final = tuple(
    sorted(
        file
        for file in FIXTURES.glob("*/*/keras_metadata.pb")
        if not file.parent.name.endswith(".migrated")
    )
)


def lone(path: Path, directory: Path) -> Path:
    """Return a copy of a metadata file without its SavedModel."""
    target = directory / "keras_metadata.pb"
    target.write_bytes(path.read_bytes())
    return target


class TestKerasMetadata(FormatContract):
    package = "keras_metadata"
    document_format = ("keras-metadata",)
    samples = SAMPLES


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_metadata_file_has_the_layers_and_policies_of_the_savedmodel(
    path: Path, tmp_path: Path
) -> None:
    whole, alone = (
        policytool.inspect(str(path.parent)),
        policytool.inspect(str(lone(path, tmp_path))),
    )
    assert alone.written_by == whole.written_by
    assert sorted(policies(alone)) == sorted(policies(whole))
    if whole.layers[0].class_name in MODEL_CLASSES and path.parent.name != "shared_layer":
        direct = [
            [layer.path for layer in model.layers if layer.path.count("/") == 1]
            for model in (whole, alone)
        ]
        assert direct[0] == direct[1]
    assert alone.optimizer == whole.optimizer
    assert not alone.releases


def policies(model: policytool.Model) -> list[tuple[str, str | None, str]]:
    """
    Return the name, policy and path of each layer; the path of a shared layer can begin at another
    of its places.
    """
    return [(layer.name, layer.policy, str(layer.address)) for layer in model.layers]


def with_byte(data: bytes, old: bytes, new: bytes) -> bytes:
    """Return the data with the first occurrence of these bytes replaced."""
    assert old in data
    return data.replace(old, new, 1)


DAMAGE: Final[dict[str, Callable[[bytes], bytes]]] = {
    "truncated": lambda data: data[:-10],
    "mangled": lambda data: data.decode("utf-8", "replace").encode(),
    "metadata-rootless": lambda data: with_byte(data, b"\x1a\x04root", b"\x1a\x04roof"),
    "invalid-json": lambda data: with_byte(data, b'{"', b'["'),
}
"""Code to what is done to a file."""


@pytest.mark.parametrize("code", DAMAGE)
def test_damage_is_named(code: str, tmp_path: Path) -> None:
    path = tmp_path / "keras_metadata.pb"
    path.write_bytes(DAMAGE[code](SAMPLES[0].read_bytes()))
    with pytest.raises(ModelFileError) as caught:
        policytool.inspect(str(path))
    assert caught.value.code == code


def test_metadata_file_in_a_savedmodel_selects_the_savedmodel() -> None:
    assert policytool.inspect(str(SAMPLES[0])).format == "savedmodel"
