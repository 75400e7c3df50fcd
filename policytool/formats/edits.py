"""
The changes to a model file, as data: JSON values, stored tensors, and optimizer state.

:class:`Content` describes a new file: its JSON documents, and the source of the values of each
stored variable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping  # for the codec
from enum import StrEnum
from pathlib import Path  # noqa: TC003  # for the codec
from typing import TypeAlias

from msgspec import Struct, field

from policytool.formats.document import (
    Address,  # noqa: TC001  # for the codec
    Tensor,  # noqa: TC001  # for the codec
)
from policytool.support.text.jsontext import Absent, Json  # noqa: TC001  # for the codec


class EditKind(StrEnum):
    """The effect of an edit on users of the model."""

    FORMAT = "format"
    """Only the releases that can read the file change."""

    NUMERICS = "numerics"
    """The dtype in which a layer computes or stores its variables changes."""

    TRAINING = "training"
    """Further training changes: loss scaling, the optimizer and its state."""

    STORAGE = "storage"
    """The storage of a tensor changes."""


class Edit(Struct, frozen=True, kw_only=True):
    """One JSON value that changes."""

    kind: EditKind
    address: Address
    path: str | None
    """The layer of the value; None for the optimizer."""

    before: Json | Absent
    after: Json | Absent
    reason: str


class Cast(Struct, frozen=True, kw_only=True):
    """One stored tensor that gets another dtype."""

    tensor: tuple[str, ...]
    """The path in the file, as in :attr:`policytool.formats.document.Tensor.path`."""

    path: str | None
    """The layer of the tensor; None for the optimizer's state."""

    before: str
    after: str
    """The stored dtypes, by their names in Keras."""

    reason: str
    through: str | None = None
    """
    A dtype that values are rounded to on the way, where the file cannot store the one the layer has
    (bfloat16 as float32).
    """


class StateSlot(Struct, frozen=True, kw_only=True):
    """One variable of the optimizer's state in a ``.keras`` file, as it will be stored."""

    tensor: tuple[str, ...]
    """The new path, e.g. ``("optimizer", "vars", "4")``."""

    source: tuple[str, ...] | None = None
    """The path of the tensor that is copied bit for bit; None if all values are ``value``."""

    dtype: str | None = None
    value: float | None = None


class Counts(Struct, frozen=True, kw_only=True):
    """
    The effects of a cast on the values of a tensor. Values that were not finite before the cast are
    not counted as lost.
    """

    values: int = 0
    overflow: int = 0
    """The number of values that became infinite."""

    subnormal: int = 0
    """The number of values that became subnormal, which loses precision."""

    flushed: int = 0
    """The number of values that became zero."""

    zero: int = 0
    """The number of zeros before the cast; set by :func:`policytool.formats.casting.count`."""

    nonfinite: int = 0
    """The number of NaNs and infinities before; set by :func:`policytool.formats.casting.count`."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            values=self.values + other.values,
            overflow=self.overflow + other.overflow,
            subnormal=self.subnormal + other.subnormal,
            flushed=self.flushed + other.flushed,
            zero=self.zero + other.zero,
            nonfinite=self.nonfinite + other.nonfinite,
        )


Counted: TypeAlias = Mapping[tuple[str, ...], Counts]
"""The effects of casts on the values of each tensor, by its path in the plan."""


class WriteOptions(Struct, frozen=True, kw_only=True):
    """The options for writing a file."""

    overwrite: bool = False
    """Whether an existing output or backup is replaced."""

    in_place: bool = False
    """Whether the source is replaced; the target is then ignored."""

    backup: bool = True
    """Whether a replaced source is kept as ``NAME.bak``."""

    is_private: bool = False
    """
    Whether only this process reads the result, and checks it. The result is then neither flushed to
    the disk nor compared with the source.
    """

    shown: str | None = None
    """The name of the source in messages; None for its path."""

    verify: Callable[[Path], None] | None = None
    """
    Called before the result replaces anything, with a path by which any process of this user can
    read the result. An exception cancels the write, and nothing is changed.
    """


class Written(Struct, frozen=True, kw_only=True):
    """The result of a write."""

    target: Path
    """The path of the written file, with links resolved."""

    backup: Path | None = None
    """The path of the original, if it was replaced and kept."""

    followed_link: bool = False
    write_seconds: float = 0.0
    """The seconds until the new file was on the disk."""

    compare_seconds: float = 0.0
    counts: Counted = field(default_factory=dict)


class Assembly(Struct, frozen=True, kw_only=True):
    """
    Tensors of the source that form one variable: each is reshaped, transposed and flipped, and then
    all are concatenated along the last axis.
    """

    parts: tuple[Tensor, ...]
    reshape: tuple[int, ...] = ()
    """The shape to which each tensor is reshaped first; empty to keep its shape."""

    axes: tuple[int, ...] = ()
    """The axes for ``numpy.transpose``; empty for no transposition."""

    flip: tuple[int, ...] = ()
    """The axes that are flipped after the transposition."""

    product: float | None = None
    """
    The factor of the matrix product of the second and third tensor, which is added to the first
    instead of the concatenation; None to concatenate.
    """


class NewVariable(Struct, frozen=True, kw_only=True):
    """
    A variable of the new model, and the source of its values: a tensor of the source, or
    :attr:`fill`.
    """

    shape: tuple[int, ...]
    dtype: str
    """
    The Keras dtype in which it is stored.

    Floats are cast to this dtype; it must represent all other values exactly.
    """

    source: Tensor | None = None
    """
    The tensor of the source with the values. They are copied bit for bit, unless another field
    changes them.
    """

    made_of: Assembly | None = None
    """The tensors that form the values; None if a single tensor has the values in this layout."""

    scale: tuple[float, ...] | None = None
    """
    Factors along the last axis, by which the values are multiplied in float64; a single factor
    applies to all values.
    """

    fill: tuple[float, ...] | None = None
    """
    The values, in C order, of a variable that the source lacks; a single value fills the variable.
    """


class Placement(NewVariable, frozen=True, kw_only=True):
    """A variable with its place in the new file."""

    path: tuple[str, ...]
    """
    The path in the new file.

    HDF5: below ``model_weights``, e.g. ``("dense", "dense", "kernel:0")``; of the optimizer's
    state, below ``optimizer_weights``. ``.keras``: below the root of ``model.weights.h5``, e.g.
    ``("layers", "dense", "vars", "0")``. TensorFlow.js: the name in the manifest, ``("dense",
    "kernel")``.
    """

    through: str | None = None
    """
    A dtype that values are rounded to on the way, where the file cannot store the one the layer has
    (bfloat16 as float32).
    """

    layer: str | None = None
    """The path of the variable's layer; None for the optimizer's state."""


class StoredGroup(Struct, frozen=True, kw_only=True):
    """
    A group that describes a layer. HDF5 has a group for each layer of the model; ``.keras`` has a
    group for each ``vars``.
    """

    path: tuple[str, ...]
    """
    HDF5: below ``model_weights``, all but ``top_level_model_weights`` (Keras 2.9 on: the model's
    own variables) a layer's; ``.keras``: below the root.

    A name that contains ``/`` may be one step or several; the groups are the same.
    """

    names: tuple[str, ...] = ()
    """HDF5: the attribute ``weight_names``, in the order in which releases read the weights."""

    name: str | None = None
    """
    ``.keras``: the layer's name, which Keras 3.6 and later write next to ``vars``; None to write no
    name.
    """


class Content(Struct, frozen=True, kw_only=True):
    """The complete content of a new file."""

    container: str
    """``h5``, ``keras``, ``json`` or ``tfjs``."""

    config: Json
    """
    The serialised model: HDF5's ``model_config``, the archive's ``config.json`` (with
    ``compile_config`` in it), or the whole of a JSON file.
    """

    training: Json = None
    """HDF5's ``training_config``; None if the model is not compiled."""

    keras_version: str = ""
    """
    The Keras version that the file names as its writer: an attribute in HDF5, and a key of
    ``metadata.json`` in archives.

    HDF5 also has the attribute ``backend`` (``tensorflow``).
    """

    groups: tuple[StoredGroup, ...] = ()
    """In the order of the model's layers."""

    placements: tuple[Placement, ...] = ()
    state: tuple[Placement, ...] = ()
    """The optimizer's state."""

    state_names: tuple[str, ...] = ()
    """HDF5: ``weight_names`` of ``optimizer_weights``, in order."""

    spelled: Mapping[str, str] = field(default_factory=dict)
    """
    Additional entries of ``metadata.json``.

    Keras writes ``date_saved`` there (``%Y-%m-%d@%H:%M:%S``), which its KerasFileEditor reads;
    without it the builder says 1980.
    """
