"""
The variables that layers of each release have, in the order and at the places in which files hold
them.

``data/layer_variables.json`` is what the releases' own layers had when they were built and saved
(``fixtures/layer_variables.py`` asks them, and explains it). It has an expression for the shape of
each variable, which :func:`variable_shape` computes from the config and the shapes of the inputs.
"""

from __future__ import annotations

import json
import math
import re
from functools import cache, reduce
from operator import floordiv
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from policytool.releases import data
from policytool.releases.layer_classes import layer_facts, layer_of_cell
from policytool.releases.output_shapes import (
    SEVERAL,
    Shape,
    UnknownShapeError,
    all_known,
    concatenated,
    equation_of,
    equation_sizes,
    integer,
    known,
    product,
    split_image,
    window_counts,
)
from policytool.releases.releases import LOADERS, get, is_since

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


_SET: Final = "*"
"""A condition that is true for any value except null."""

_ATTRIBUTE: Final = 3
"""The column of the attribute in a row, if it is not the variable's name."""


class VariableSlot(Struct, frozen=True, kw_only=True):
    """One variable of a class in a release."""

    name: str
    """The name in HDF5, without scopes."""

    scopes: tuple[str, ...]
    """The names of the objects that create the variable, below the layer: ``("lstm_cell",)``."""

    within: tuple[str, ...]
    """The attributes that lead to the object with the variable: ``("cell",)``."""

    index: int | str
    """Its number in the ``vars`` of its object, or its name there."""

    attribute: str | None
    """The attribute that contains the variable, its name in SavedModels; None for a list."""

    trainable: bool
    known_as: str
    """The name of the variable in all releases."""

    @property
    def key(self) -> tuple[tuple[str, ...], str]:
        """The identity of the variable in its layer, the same in every release."""
        return plain(self.within), self.known_as


def plain(within: tuple[str, ...]) -> tuple[str, ...]:
    """
    Return the attributes that lead to a variable in a form that is the same in all releases:
    ``_query_dense`` of MultiHeadAttention in Keras 2 becomes ``query_dense`` of Keras 3.
    """
    return tuple(part.removeprefix("_") for part in within)


def slots(
    class_name: str, release: str, config: Mapping[str, object]
) -> tuple[VariableSlot, ...] | None:
    """
    Return the variables of a layer and of the layers that it creates, in the order of HDF5; None
    for a class without data.
    """
    record = _record(class_name, _measured_release(release))
    if record is None:
        return _cell_slots(class_name, release, config)
    absent: set[int] = set()
    for condition, positions in record.get("absent", ()):
        if all(
            _matches_condition(config.get(key, record["unsaid"].get(key)), value)
            for key, value in condition.items()
        ):
            absent.update(positions)
    return _present_slots(class_name, _measured_release(release), frozenset(absent))


@cache
def _present_slots(
    class_name: str, release: str, absent: frozenset[int]
) -> tuple[VariableSlot, ...]:
    """Return the variables of a known class without those at some positions of its record."""
    rows = (_record(class_name, release) or {})["slots"]
    renamed = layer_facts(class_name).renamed_variables
    numbered_slots = _number_slots(
        [row for position, row in enumerate(rows) if position not in absent]
    )
    return tuple(
        replace(slot, known_as=renamed.get(slot.name, slot.name)) for slot in numbered_slots
    )


def class_slots(class_name: str) -> Mapping[tuple[tuple[str, ...], int | str], VariableSlot]:
    """
    Return all variables that layers of a class can have, independent of their configs. The key
    consists of the attributes that lead to the variable, as in every release, and its number.
    """
    records = data.read("layer_variables")["classes"].get(class_name, ())
    return {
        (plain(slot.within), slot.index): slot
        for record in reversed(records)
        for slot in _number_slots(record["slots"])
    }


def has_variables(class_name: str) -> bool | None:
    """Return whether layers of a class can have variables of their own; None if it is unknown."""
    records = data.read("layer_variables")["classes"].get(class_name)
    return None if records is None else any(record["slots"] for record in records)


def may_lack_variables(class_name: str, release: str) -> bool:
    """Return whether layers of a class have no variables with some configs."""
    record = _record(class_name, _measured_release(release))
    if record is None or not record["slots"]:
        return False
    absent = {position for _, positions in record.get("absent", ()) for position in positions}
    return len(absent) == len(record["slots"])


def record_number(class_name: str, release: str) -> int | None:
    """
    Return a number that is equal for two releases whose layers of a class have the same variables.
    """
    record = _record(layer_of_cell(class_name) or class_name, _measured_release(release))
    return None if record is None else id(record)


def _cell_slots(
    class_name: str, release: str, config: Mapping[str, object]
) -> tuple[VariableSlot, ...] | None:
    """Return the variables of a cell, from those of the layer that creates it."""
    layer = layer_of_cell(class_name)
    layer_slots = slots(layer, release, config) if layer is not None else None
    return (
        None
        if layer_slots is None
        else tuple(
            replace(slot, scopes=(), within=()) for slot in layer_slots if slot.within == ("cell",)
        )
    )


def _matches_condition(value: object, condition: str) -> bool:
    return (
        value is not None
        if condition == _SET
        else (value is None or isinstance(value, bool | str)) and json.dumps(value) == condition
    )


def _number_slots(rows: Sequence[Sequence[Any]]) -> tuple[VariableSlot, ...]:
    """
    Return slots with their numbers in each object, its trainable variables first, as
    ``Layer.save_own_variables`` numbers them.
    """
    counts: dict[str, int] = {}
    numbers: dict[int, int] = {}
    for position, row in sorted(enumerate(rows), key=lambda pair: (not pair[1][2], pair[0])):
        numbers[position] = counts.get(row[1], 0)
        counts[row[1]] = numbers[position] + 1
    return tuple(
        VariableSlot(
            name=row[0].rpartition("/")[2],
            scopes=tuple(row[0].split("/")[:-1]),
            within=tuple(part for part in row[1].split("/") if part),
            index=numbers[position],
            attribute=row[_ATTRIBUTE] if len(row) > _ATTRIBUTE else row[0].rpartition("/")[2],
            trainable=bool(row[2]),
            known_as=row[0].rpartition("/")[2],
        )
        for position, row in enumerate(rows)
    )


def _record(class_name: str, release: str) -> dict[str, Any] | None:
    is_known = class_name in data.read("layer_variables")["classes"]
    return _record_of_known(class_name, release) if is_known else None


@cache
def _record_of_known(class_name: str, release: str) -> dict[str, Any] | None:
    """
    Return the record of a class for a release. A release before the class was measured has the
    record of the next later release of its family.
    """
    records = data.read("layer_variables")["classes"][class_name]
    exact_record = next((record for record in records if release in record["releases"]), None)
    if exact_record is not None or release not in LOADERS:
        return exact_record
    later_records = [
        name
        for name in LOADERS
        if is_since(name, release) and get(name).family == get(release).family
    ]  # TF 2.1 has layers that were measured in 2.4
    return next(
        (record for name in later_records for record in records if name in record["releases"]), None
    )


@cache
def _measured_release(release: str) -> str:
    """
    Return the newest measured release that is not newer than a release; the oldest measured one for
    Keras 2.3 and older.
    """
    measured_releases: list[str] = data.read("layer_variables")["releases"]
    if release not in LOADERS:
        return measured_releases[0]
    return next(
        (name for name in reversed(measured_releases) if is_since(release, name)),
        measured_releases[0],
    )


INPUT: Final = "input"
"""The name of the input of a layer that is called on one tensor, or of the first of several."""

_FACTOR: Final = re.compile(r"(?P<name>[a-z_]+)(?:\[(?P<place>[\w-]+)\])?")
_INPUTS: Final = frozenset({INPUT, "query", "key", "value"})
_UNGROUPED: Final = {"groups": 1}
"""Convolutions of TF 1.13 to 2.2 have no groups."""


class LayerBuild(Struct, frozen=True, kw_only=True):
    """The arguments and input shapes from which a layer is built."""

    config: Mapping[str, object]
    inputs: Mapping[str, Sequence[int | None]] = field(default_factory=lambda: MappingProxyType({}))
    """
    The known shapes of its inputs, with the batch, by their names: ``input``; for attention layers
    ``query``, ``key`` and ``value``.
    """


def variable_shape(class_name: str, slot: VariableSlot, build: LayerBuild) -> Shape | None:
    """
    Return the shape of a variable of a layer; None if its rank is unknown, or if the data has no
    expression for it.
    """
    items = _expression(class_name, slot)
    if items is None:
        return None
    return concatenated(_sizes(item, build) for item in items)


def rank(class_name: str, slot: VariableSlot) -> int | None:
    """Return the rank of a variable if it is the same in all layers of a class, else None."""
    items = _expression(class_name, slot)
    if items is None or any(item.startswith(SEVERAL) for item in items):
        return None
    return len(items)


def agree(class_name: str, variables: Iterable[tuple[VariableSlot, Shape]]) -> bool:
    """
    Return whether these shapes are possible for some arguments and inputs of a class. Only the
    ranks, and equal sizes of equal expressions, are compared.
    """
    sizes: dict[str, int | None] = {}
    whole: dict[tuple[str, ...], Shape] = {}
    products: list[tuple[str, int | None]] = []
    for slot, shape in variables:
        items = _expression(class_name, slot)
        if items is None:
            continue
        if any(item.startswith(SEVERAL) for item in items):
            if whole.setdefault(tuple(items), shape) != shape:
                return False
            continue
        if len(items) != len(shape):
            return False
        for item, size in zip(items, shape, strict=True):
            if "*" in item:
                products.append((item, size))
            elif sizes.setdefault(item, int(item) if item.isdecimal() else size) != size:
                return False
    return all(size == expected for expected, size in _known_products(products, sizes))


def _known_products(
    products: Iterable[tuple[str, int | None]], sizes: Mapping[str, int | None]
) -> Iterable[tuple[int, int | None]]:
    """Yield the products whose factors are all known, each with the stored size."""
    for item, size in products:
        factors = all_known(
            int(factor) if factor.isdecimal() else sizes.get(factor) for factor in item.split("*")
        )
        if factors is not None:
            yield math.prod(factors), size


def _expression(class_name: str, slot: VariableSlot) -> Sequence[str] | None:
    """
    Return the items of a shape expression. Those of a cell are in the entry of the layer that
    creates it.
    """
    shapes = layer_facts(layer_of_cell(class_name) or class_name).variable_shapes
    scoped = "/".join((*slot.scopes[-1:], slot.name))
    return shapes.get(scoped, shapes.get(slot.name))


def _sizes(item: str, build: LayerBuild) -> Sequence[int | None]:
    """
    Return the sizes of an item: several sizes, or the product of numbers, arguments and input
    sizes. An unknown factor makes the product unknown.

    :raises UnknownShapeError: if the number of sizes is unknown
    """
    if item.startswith(SEVERAL):
        return _SEVERAL_SIZES[item.removeprefix(SEVERAL)](build)
    dividend, *others = item.split("/")
    factors = all_known(_factor(factor, build) for factor in dividend.split("*"))
    divisors = all_known(_factor(factor, build) for factor in others)
    if factors is None or divisors is None or 0 in divisors:
        return (None,)
    return (reduce(floordiv, divisors, math.prod(factors)),)


def _factor(text: str, build: LayerBuild) -> int | None:
    """
    Return the value of a factor in a shape expression: a number, an argument or a size; None if
    unknown.
    """
    factor = _parsed_factor(text)
    if isinstance(factor, int):
        return factor
    name, place = factor
    if name in _INPUTS and place is not None:
        return _input_size(build.inputs.get(name), place, build.config)
    value = build.config.get(name, _UNGROUPED.get(name))
    if place is not None and isinstance(value, list | tuple):
        value = value[int(place)] if int(place) < len(value) else None
    return integer(value)


@cache
def _parsed_factor(text: str) -> int | tuple[str, str | None]:
    """Return a number, or the name of an argument or input with the axis of the size."""
    if text.isdecimal():
        return int(text)
    match = _FACTOR.fullmatch(text)
    if match is None:
        raise ValueError(f"a size cannot have the factor {text}")
    return match["name"], match["place"]


def _input_size(
    shape: Sequence[int | None] | None, place: str, config: Mapping[str, object]
) -> int | None:
    """
    Return the size of an input along an axis: its number, ``channels``, or the ``axis`` of the
    config.
    """
    if shape is None:
        return None
    if place == "axis":
        listed = _listed(config.get("axis", -1))
        axis = integer(listed[0]) if len(listed) == 1 else None
    elif place == "channels":
        kernel = config.get("kernel_size")
        before = len(kernel) if isinstance(kernel, list | tuple) else 0
        axis = -1 - before if config.get("data_format") == "channels_first" else -1
    else:
        axis = int(place)
    return shape[axis] if axis is not None and -len(shape) <= axis < len(shape) else None


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else [value]


def _axes(value: object) -> list[int]:
    """
    Return the axes in the value of an argument.

    :raises UnknownShapeError: if the value is neither an axis nor a list of axes
    """
    return [known(integer(item)) for item in _listed(value)]


def _axis_sizes(build: LayerBuild) -> Sequence[int | None]:
    """Return the sizes of the axes that an argument lists; none for no axis."""
    axis, shape = build.config.get("axis", -1), build.inputs.get(INPUT)
    axes = [] if axis is None else _axes(axis)
    return [
        shape[number] if shape is not None and -len(shape) <= number < len(shape) else None
        for number in axes
    ]


def _unshared_sizes(build: LayerBuild) -> Sequence[int | None]:
    """
    Return the sizes of an input without the batch, with 1 for each axis that ``shared_axes`` lists.
    """
    shape, shared = known(build.inputs.get(INPUT)), _axes(build.config.get("shared_axes") or [])
    return [1 if number in shared else size for number, size in enumerate(shape) if number]


def _bias_rows(build: LayerBuild) -> Sequence[int | None]:
    """
    Return the first size of a GRU's bias, which has two rows if the reset gate is applied after the
    matrix product.
    """
    reset_after = build.config.get("reset_after")
    if not isinstance(reset_after, bool):
        raise UnknownShapeError
    return [2] if reset_after else []


def _output_sizes(build: LayerBuild) -> Sequence[int | None]:
    """
    Return the sizes to which attention projects its results: by default, those of its queries.
    """
    sizes = build.config.get("output_shape")
    if sizes is None:
        return [_input_size(build.inputs.get("query"), "-1", build.config)]
    return _axes(sizes)


def _kernel_sizes(build: LayerBuild) -> Sequence[int | None]:
    """
    Return the shape of the kernel of an EinsumDense. Each letter has its size in the output, or
    otherwise its size in the input (``_analyze_einsum_string`` in
    keras/src/layers/core/einsum_dense.py).
    """
    sizes = _letters(build)
    return [sizes.get(letter) for letter in known(equation_of(build.config))["kernel"]]


def _equation_bias_sizes(build: LayerBuild) -> Sequence[int | None]:
    """
    Return the shape of the bias of an EinsumDense: the sizes of its letters, and 1 for each later
    letter of the output.
    """
    equation, sizes = known(equation_of(build.config)), _letters(build)
    axes = build.config.get("bias_axes")
    if not isinstance(axes, str):
        raise UnknownShapeError
    output = equation["output"].replace("...", "")
    start = next((number for number, letter in enumerate(output) if letter in axes), len(output))
    return [sizes.get(letter) if letter in axes else 1 for letter in output[start:]]


def _letters(build: LayerBuild) -> Mapping[str, int | None]:
    return equation_sizes(build.config, build.inputs.get(INPUT))


def _window_counts(build: LayerBuild) -> Sequence[int | None]:
    """Return the number of windows of a kernel along each axis of an input."""
    sizes, _ = split_image(build.config, build.inputs.get(INPUT))
    return window_counts({"padding": "valid", **build.config}, sizes, "kernel_size")


def _unshared_kernel_sizes(build: LayerBuild) -> Sequence[int | None]:
    """
    Return the shape of the kernel of a locally connected layer, which has separate weights for each
    window (``build`` in tf_keras/src/layers/locally_connected/locally_connected2d.py).

    ``implementation`` selects a matrix for each window, a weight for each pair of an input and an
    output, or a weight for each connected pair.
    """
    counts = _window_counts(build)
    sizes, channels = split_image(build.config, build.inputs.get(INPUT))
    filters, implementation = (
        integer(build.config.get(key)) for key in ("filters", "implementation")
    )
    if implementation not in (1, 2, 3):
        raise UnknownShapeError
    if implementation == 3:  # noqa: PLR2004  # the argument numbers them
        return [None]
    if implementation == 1:
        width = [*_axes(build.config.get("kernel_size")), channels]
        return [product(counts), product(width), filters]
    if build.config.get("data_format") == "channels_first":
        return [channels, *sizes, filters, *counts]
    return [*sizes, channels, *counts, filters]


def _frequency_counts(build: LayerBuild) -> Sequence[int | None]:
    """
    Return the number of frequencies of a real Fourier transform. Its length is by default the
    smallest power of two that covers a frame (keras/src/layers/preprocessing/stft_spectrogram.py).
    """
    length = integer(build.config.get("fft_length"))
    frame = integer(build.config.get("frame_length"))
    if length is None and frame is not None and build.config.get("fft_length") is None:
        length = 1 << (frame - 1).bit_length()
    return [None if length is None else length // 2 + 1]


_SEVERAL_SIZES: Final[Mapping[str, Callable[[LayerBuild], Sequence[int | None]]]] = (
    MappingProxyType(
        {
            "axis": _axis_sizes,
            "bias_axes": _equation_bias_sizes,
            "equation": _kernel_sizes,
            "frequencies": _frequency_counts,
            "output_shape": _output_sizes,
            "reset_after": _bias_rows,
            "shared_axes": _unshared_sizes,
            "unshared_kernel": _unshared_kernel_sizes,
            "windows": _window_counts,
        }
    )
)
