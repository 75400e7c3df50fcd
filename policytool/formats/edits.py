"""
What changes in a model file, as values: JSON values, stored tensors, and optimizer state.

A file that is written from nothing has a :class:`Content` instead: its JSON documents, and where
each stored variable gets its values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping  # for the codec
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path  # noqa: TC003  # for the codec
from typing import TypeAlias

from policytool.formats.document import (
    Address,  # noqa: TC001  # for the codec
    Tensor,  # noqa: TC001  # for the codec
)
from policytool.support.text.jsontext import Absent, Json  # noqa: TC001  # for the codec


class EditKind(StrEnum):
    """The effect of an edit on users of the model."""

    FORMAT = "format"
    """Nothing but who can read it."""

    NUMERICS = "numerics"
    """What a layer computes in or stores its variables in."""

    TRAINING = "training"
    """How training goes on: loss scaling, the optimizer and its state."""

    STORAGE = "storage"
    """How a tensor is stored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    """One JSON value that changes."""

    kind: EditKind
    address: Address
    path: str | None
    """The layer it belongs to; None for the optimizer."""

    before: Json | Absent
    after: Json | Absent
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Cast:
    """One stored tensor that gets another dtype."""

    tensor: tuple[str, ...]
    """Where it is stored, as :attr:`policytool.formats.document.Tensor.path` has it."""

    path: str | None
    """The layer it belongs to; None for the optimizer's state."""

    before: str
    after: str
    """Keras' dtype names, as stored."""

    reason: str
    through: str | None = None
    """
    A dtype that values are rounded to on the way, where the file cannot store the one the layer has
    (bfloat16 as float32).
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class StateSlot:
    """One variable of the optimizer's state in a ``.keras`` file, as it will be stored."""

    tensor: tuple[str, ...]
    """Its new place, e.g. ``("optimizer", "vars", "4")``."""

    source: tuple[str, ...] | None = None
    """The place whose values it takes over, bit for bit; None where it starts from ``value``."""

    dtype: str | None = None
    value: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Counts:
    """
    What a cast did to the values of a tensor; values that were not finite before are not counted as
    lost.
    """

    values: int = 0
    overflow: int = 0
    """Became infinite."""

    subnormal: int = 0
    """Became so small that precision is lost."""

    flushed: int = 0
    """Became zero."""

    zero: int = 0
    """Were zero before; filled by :func:`policytool.formats.casting.count`."""

    nonfinite: int = 0
    """Were NaN or infinite before; filled by :func:`policytool.formats.casting.count`."""

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
"""What casts did to the values of each tensor, by its path in the plan."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WriteOptions:
    """How a file is written."""

    overwrite: bool = False
    """Whether an output, or a backup, that exists is replaced."""

    in_place: bool = False
    """Whether the source is replaced, whatever the target is."""

    backup: bool = True
    """Whether a source that is replaced stays as ``NAME.bak``."""

    shown: str | None = None
    """The source as messages show it; None for its path."""

    verify: Callable[[Path], None] | None = None
    """
    Gets a path by which any process of this user can read the result, before it has its place; what
    it raises ends the write, and nothing was changed.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A file that was written."""

    target: Path
    """Where it is: what a link led to, where one was followed."""

    backup: Path | None = None
    """Where the original is, if it was replaced and kept."""

    followed_link: bool = False
    write_seconds: float = 0.0
    """Until the new file was on the disk."""

    compare_seconds: float = 0.0
    counts: Counted = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Assembly:
    """
    Tensors of the source that make one variable: each is reshaped, turned and flipped, then they
    are joined along the last axis.
    """

    parts: tuple[Tensor, ...]
    reshape: tuple[int, ...] = ()
    """The shape that each is given first; empty for its own."""

    axes: tuple[int, ...] = ()
    """As ``numpy.transpose`` takes them; empty for none."""

    flip: tuple[int, ...] = ()
    """The axes that are reversed then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """
    One stored variable of the new file, and where its values come from: a tensor of the source, or
    :attr:`fill`.
    """

    path: tuple[str, ...]
    """
    Where it will stand.

    HDF5: below ``model_weights``, e.g. ``("dense", "dense", "kernel:0")``; of the optimizer's
    state, below ``optimizer_weights``. ``.keras``: below the root of ``model.weights.h5``, e.g.
    ``("layers", "dense", "vars", "0")``. TensorFlow.js: the name in the manifest, ``("dense",
    "kernel")``.
    """

    shape: tuple[int, ...]
    dtype: str
    """
    The Keras dtype that it is stored in.

    Floats are cast to it; other values have to be the same in it.
    """

    source: Tensor | None = None
    """
    The tensor of the source that has its values, bit for bit unless something below says otherwise.
    """

    made_of: Assembly | None = None
    """Where no tensor of the source has the values as they are to lie: what they are made of."""

    through: str | None = None
    """
    A dtype that values are rounded to on the way, where the file cannot store the one the layer has
    (bfloat16 as float32).
    """

    scale: tuple[float, ...] | None = None
    """
    Factors along the last axis, which the values are multiplied by in float64; one factor stands
    for all.
    """

    fill: tuple[float, ...] | None = None
    """
    The values in C order of a variable that the source does not have; one value stands for all.
    """

    layer: str | None = None
    """The path of the layer that it belongs to; None for the optimizer's state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredGroup:
    """
    A group that describes a layer: in HDF5 one for each layer of the model, in ``.keras`` one for
    each ``vars``.
    """

    path: tuple[str, ...]
    """
    HDF5: below ``model_weights``, all but ``top_level_model_weights`` (Keras 2.9 on: the model's
    own variables) a layer's; ``.keras``: below the root.

    A name with a ``/`` in it may be one step or several: it makes the same groups.
    """

    names: tuple[str, ...] = ()
    """HDF5: its ``weight_names``, in the order that loaders read them in."""

    name: str | None = None
    """
    ``.keras``: the layer's name, which Keras 3.6 and later write beside ``vars``; None where it is
    not written.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Content:
    """Everything that a new file holds."""

    container: str
    """``h5``, ``keras``, ``json`` or ``tfjs``."""

    config: Json
    """
    The serialised model: HDF5's ``model_config``, the archive's ``config.json`` (with
    ``compile_config`` in it), or the whole of a JSON file.
    """

    training: Json = None
    """HDF5's ``training_config``; None where the model is not compiled."""

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
    Further entries of ``metadata.json``.

    Keras writes ``date_saved`` there (``%Y-%m-%d@%H:%M:%S``), which its KerasFileEditor reads;
    without it the builder says 1980.
    """
