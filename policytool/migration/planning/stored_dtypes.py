"""
Which stored tensors have to be cast.

A variable is stored in its variable dtype, with one exception: no Keras reads bfloat16 from HDF5,
nor Keras 2 from a ``.keras`` of its own, so there it is stored as float32, which is exact and which
every loader takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.edits import Cast
from policytool.model.rounded_weights import CASTABLE
from policytool.releases import dtype_support, dtypes
from policytool.releases.generations import SubPolicy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.formats.document import Tensor
    from policytool.migration.planning.decisions import Decisions
    from policytool.model.loaded_model import LoadedModel

_BFLOAT16: Final = "bfloat16"
_STAND_IN: Final = "float32"


def casts(loaded: LoadedModel, decisions: Decisions, *, retrace: bool = False) -> tuple[Cast, ...]:
    """
    Return the casts that the decisions need, and those without which the file is unreadable.

    The checkpoint of a SavedModel is unchanged unless the model is re-exported.
    """
    if not stores_dtypes(loaded) or (loaded.is_saved_object and not retrace):
        return ()
    casts_by_tensor = {cast.tensor: cast for cast in _layer_casts(loaded, decisions)}
    for cast in _unreadable(loaded):
        casts_by_tensor.setdefault(cast.tensor, cast)
    return tuple(casts_by_tensor.values())


def stores_dtypes(loaded: LoadedModel) -> bool:
    """
    Return whether the file can store variables in their own dtypes: TensorFlow.js has float32
    alone, which tensorflowjs casts as it loads them.
    """
    return loaded.document.format != "tfjs"


def reads_bfloat16(loaded: LoadedModel) -> bool:
    """Return whether loaders of the file read variables that are stored as bfloat16."""
    return (loaded.is_keras3 and loaded.document.format == "keras") or loaded.is_saved_object


def _layer_casts(loaded: LoadedModel, decisions: Decisions) -> Iterator[Cast]:
    for index, tensors in loaded.placed.tensors.items():
        owner = _owner(loaded, index)
        new_dtype = decisions.variable_dtype(loaded, owner) if owner in decisions.by_site else None
        if new_dtype is None or new_dtype == loaded.layers[owner].variable_dtype:
            continue
        if loaded.layers[owner].quantization is not None:
            # scales, histories and indices keep dtypes of their own; Keras 3 rounds the rest when
            # it reads it, to the same values
            continue
        for tensor in tensors:
            if tensor.dtype in CASTABLE:
                cast = _cast(loaded, decisions, index, owner, tensor)
                if cast is not None:
                    yield cast


def _owner(loaded: LoadedModel, index: int) -> int:
    """Return whose policy a layer has: its own, or its parent's where that makes it by itself."""
    site = loaded.sites[index]
    while site.sub_policy is SubPolicy.OWN and site.parent is not None:
        index = site.parent
        site = loaded.sites[index]
    return index


def _cast(
    loaded: LoadedModel, decisions: Decisions, index: int, owner: int, tensor: Tensor
) -> Cast | None:
    name = tensor.path[-1].removesuffix(":0")
    policy = decisions.by_site[owner].policy
    own = dtype_support.variable_dtype(
        loaded.loader, loaded.sites[index].class_name, policy.name, name
    )
    variable = own or decisions.variable_dtype(loaded, owner) or tensor.dtype
    stored = _STAND_IN if variable == _BFLOAT16 and not reads_bfloat16(loaded) else variable
    if stored == tensor.dtype or stored not in CASTABLE:
        return None
    rounds = variable != stored and dtypes.itemsize(tensor.dtype) > dtypes.itemsize(stored)
    return Cast(
        tensor=tensor.path,
        path=loaded.layers[index].path,
        before=tensor.dtype,
        after=stored,
        through=variable if rounds else None,
        reason=(
            f"{loaded.layers[owner].path} stores its variables in {variable}"
            + (
                f", which releases can read from this file only as {stored}"
                if variable != stored
                else ""
            )
        ),
    )


def _unreadable(loaded: LoadedModel) -> Iterator[Cast]:
    """Yield the widening of bfloat16 where no loader reads it."""
    if reads_bfloat16(loaded):
        return
    owners = {
        tensor.path: loaded.layers[index].path
        for index, tensors in loaded.placed.tensors.items()
        for tensor in tensors
    }
    for tensor in (*(loaded.document.tensors or ()), *loaded.document.state):
        if tensor.dtype == _BFLOAT16:
            yield Cast(
                tensor=tensor.path,
                path=owners.get(tensor.path),
                before=_BFLOAT16,
                after=_STAND_IN,
                reason=(
                    "no release can read bfloat16 from this file format, and float32 preserves the "
                    "values"
                ),
            )
