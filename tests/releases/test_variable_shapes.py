"""The shapes of variables follow from arguments and inputs, as files of real releases have them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from policytool.formats import format_detection
from policytool.migration.convert import decoding
from policytool.migration.convert.architecture import walk
from policytool.model import reading
from policytool.releases import data
from policytool.releases.layer_classes import layer_facts
from policytool.releases.layer_variables import (
    LayerBuild,
    VariableSlot,
    agree,
    rank,
    slots,
    variable_shape,
)
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from policytool.migration.convert.architecture import Unit
    from policytool.releases.output_shapes import Shape

ARCHIVES = sorted(FIXTURES.glob("keras3*/*.keras"))


def inputs_of(unit: Unit) -> Mapping[str, list[int | None]]:
    """Return the shapes that an archive says a layer was built for."""
    build = unit.build or {}
    shapes = build.get("shapes_dict", build)
    named = {
        name.removesuffix("_shape"): shape
        for name, shape in shapes.items()  # type: ignore[union-attr]  # an object of every archive
        if isinstance(shape, list) and not any(isinstance(size, list) for size in shape)
    }
    if "value" in named:
        named.setdefault("key", named["value"])
    return named  # type: ignore[return-value]  # sizes and nulls


def variables_of(path: Path) -> Iterator[tuple[Unit, VariableSlot, Shape | None]]:
    """Yield the variables that layers of an archive hold themselves, with their stored shapes."""
    loaded = reading.load_model(format_detection.document(path, path.name))
    for unit in walk(decoding.decode(loaded)):
        if unit.site is None or unit.custom or loaded.layers[unit.site].quantization is not None:
            continue
        stored = {item.name: item.shape for item in loaded.placed.variables.get(unit.site, ())}
        for slot in slots(unit.class_name, loaded.loader, unit.config) or ():
            if not slot.within and str(slot.index) in stored:
                yield unit, slot, stored[str(slot.index)]


def test_archives_have_the_shapes_that_arguments_give() -> None:
    """Each size that the expression tells is the stored one, in every archive of Keras 3."""
    compared: set[tuple[str, str]] = set()
    for path in ARCHIVES:
        for unit, slot, stored in variables_of(path):
            build = LayerBuild(config=unit.config, inputs=inputs_of(unit))
            shape = variable_shape(unit.class_name, slot, build)
            assert shape is None or stored is None or len(shape) == len(stored), (path, unit.name)
            if shape is not None and stored is not None:
                assert all(
                    size in (None, actual) for size, actual in zip(shape, stored, strict=True)
                ), (path, unit.name, shape, stored)
                compared.add((unit.class_name, slot.name))
    assert compared >= {("Dense", "kernel"), ("BatchNormalization", "gamma")}


def slot_of(name: str) -> VariableSlot:
    """Return a variable that the layer itself holds."""
    return VariableSlot(
        name=name, scopes=(), within=(), index=0, attribute=name, trainable=True, known_as=name
    )


@pytest.mark.parametrize(
    ("class_name", "name", "config", "shape", "expected"),
    [
        ("Dense", "kernel", {"units": 3}, (None, 5), (5, 3)),
        ("Dense", "kernel", {"units": 3}, None, (None, 3)),
        ("Conv2D", "kernel", {"filters": 4, "kernel_size": [2, 3]}, (None, 8, 8, 6), (2, 3, 6, 4)),
        (
            "Conv2D",
            "kernel",
            {"filters": 4, "kernel_size": [2, 3], "groups": 2, "data_format": "channels_first"},
            (None, 6, 8, 8),
            (2, 3, 3, 4),
        ),
        ("GRUCell", "bias", {"units": 4, "reset_after": True}, None, (2, 12)),
        ("GRU", "bias", {"units": 4, "reset_after": False}, None, (12,)),
        ("GRU", "bias", {"units": 4}, None, None),
        ("BatchNormalization", "gamma", {"axis": [3]}, (None, 8, 8, 6), (6,)),
        ("BatchNormalization", "moving_mean", {}, (None, 8, 8, 6), (6,)),
        ("GroupNormalization", "gamma", {"groups": 2}, (None, 8, 6), (6,)),
        ("LayerNormalization", "gamma", {"axis": [1, 2]}, (None, 5, 6), (5, 6)),
        ("PReLU", "alpha", {"shared_axes": [1]}, (None, 5, 6), (1, 6)),
        (
            "EinsumDense",
            "kernel",
            {"equation": "...x,xy->...y", "output_shape": [4]},
            (None, 7, 5),
            (5, 4),
        ),
        (
            "EinsumDense",
            "bias",
            {"equation": "abc,cde->abde", "output_shape": [None, 4, 2], "bias_axes": "d"},
            None,
            (4, 1),
        ),
        ("EinsumDense", "kernel", {"equation": "no equation"}, (None, 5), None),
        (
            "LocallyConnected1D",
            "kernel",
            {"filters": 2, "kernel_size": [3], "strides": [2], "implementation": 1},
            (None, 7, 4),
            (3, 12, 2),
        ),
        (
            "LocallyConnected2D",
            "kernel",
            {
                "filters": 2,
                "kernel_size": [3, 3],
                "strides": [1, 2],
                "padding": "same",
                "data_format": "channels_first",
                "implementation": 2,
            },
            (None, 4, 5, 6),
            (4, 5, 6, 2, 5, 3),
        ),
        (
            "LocallyConnected2D",
            "bias",
            {"filters": 2, "kernel_size": [3, 3], "strides": [1, 1]},
            (None, 5, None, 4),
            (3, None, 2),
        ),
        ("RandomFourierFeatures", "kernel_scale", {}, (None, 5), (1,)),
        (
            "STFTSpectrogram",
            "real_kernel",
            {"frame_length": 64, "fft_length": 65},
            None,
            (64, 1, 33),
        ),
        (
            "STFTSpectrogram",
            "imag_kernel",
            {"frame_length": 200, "fft_length": None},
            None,
            (200, 1, 129),
        ),
        ("STFTSpectrogram", "real_kernel", {"frame_length": "long"}, None, (None, 1, None)),
    ],
)
def test_shapes_of_variables_follow_from_the_arguments(
    class_name: str,
    name: str,
    config: dict[str, object],
    shape: Shape | None,
    expected: Shape | None,
) -> None:
    """Unknown sizes are None."""
    build = LayerBuild(config=config, inputs={} if shape is None else {"input": shape})
    assert variable_shape(class_name, slot_of(name), build) == expected


@pytest.mark.parametrize(("shape", "expected"), [((4,), True), ((6,), False)])
def test_variables_of_a_normalization_have_one_shape(shape: Shape, *, expected: bool) -> None:
    """Gamma and beta have the sizes of the same axes, also if the file does not contain them."""
    variables = [(slot_of("gamma"), shape), (slot_of("beta"), (4,))]
    assert agree("LayerNormalization", variables) is expected


@pytest.mark.parametrize(
    ("kernel", "recurrent", "expected"),
    [
        ((3, 16), (4, 16), True),
        ((3, 12), (4, 12), False),
        ((3, 16), (4, 12), False),
        ((3, 3, 16), (4, 16), False),
    ],
)
def test_kernels_of_an_lstm_have_four_gates(
    kernel: Shape, recurrent: Shape, *, expected: bool
) -> None:
    """Both kernels end with 4 times the units, and the recurrent kernel begins with the units."""
    variables = [
        (slot_of("kernel"), kernel),
        (slot_of("recurrent_kernel"), recurrent),
    ]
    assert agree("LSTM", variables) is expected


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("log", ("real_kernel", "imag_kernel")),
        ("real", ("real_kernel",)),
        ("imag", ("imag_kernel",)),
    ],
)
def test_spectrogram_has_the_kernels_of_its_mode(mode: str, expected: tuple[str, ...]) -> None:
    """A real or imaginary result needs one kernel, and every other result needs both."""
    known = slots("STFTSpectrogram", "keras3.15", {"mode": mode})
    assert known is not None
    assert tuple(slot.name for slot in known) == expected


def test_ranks_that_arguments_decide_are_open() -> None:
    """A normalization over several axes has a gamma of several axes."""
    assert rank("Dense", slot_of("kernel")) == len(layer_facts("Dense").variable_shapes["kernel"])
    assert rank("LayerNormalization", slot_of("gamma")) is None


def test_layers_of_the_releases_have_the_shapes_that_arguments_give() -> None:
    """A release is compared when its layers are measured, and no layer is wrong."""
    text = (FIXTURES / "variable_shapes.json").read_text(encoding="utf-8")
    record = json.loads(text)["releases"]
    measured = data.read("layer_variables")["releases"]
    assert [*record] == [*measured]
    assert {release: row["wrong"] for release, row in record.items() if row["wrong"]} == {}
    assert all(row["layers"] for row in record.values())


@pytest.mark.parametrize("class_name", ["MultiHeadAttention", "GroupedQueryAttention"])
def test_gates_of_attention_without_bias_have_none(class_name: str) -> None:
    """Keras 3.15 creates the bias of a gate only if both arguments are set."""
    config = {"use_bias": False, "use_gate": True}
    known = slots(class_name, "keras3.15", config) or ()
    assert [slot.name for slot in known] == ["kernel"] * 5
