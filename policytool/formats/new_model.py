"""
What a model file holds that is written from nothing: its JSON documents, and where each stored
variable gets its values.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # for the codec
from dataclasses import dataclass, field

from policytool.formats.document import Tensor  # noqa: TC001  # for the codec
from policytool.support.text.jsontext import Json  # noqa: TC001  # for the codec


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
    ``("layers", "dense", "vars", "0")``.
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
    """``h5``, ``keras`` or ``json``."""

    config: Json
    """
    The serialised model: HDF5's ``model_config``, the archive's ``config.json`` (with
    ``compile_config`` in it), or the whole of a JSON file.
    """

    training: Json = None
    """HDF5's ``training_config``; None where the model is not compiled."""

    keras_version: str = ""
    """
    What loaders are told wrote the file: of HDF5 the attribute, of archives ``metadata.json``.

    HDF5 says ``backend`` beside it (``tensorflow``).
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
