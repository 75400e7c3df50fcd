"""The stored values that a layer rounds to fewer bits before it computes with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.model import custom_classes
from policytool.releases import dtype_support, dtypes
from policytool.releases.layer_classes import layer_facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from policytool.model.loaded_model import LoadedModel

CASTABLE: Final = frozenset({"float16", "bfloat16", "float32", "float64"})


def deciding(loaded: LoadedModel, index: int) -> int:
    """
    Return the layer whose policy determines the compute dtype of a layer. In Keras 3, the policy of
    a TimeDistributed also applies to the layer in it.
    """
    site = loaded.sites[index]
    if (
        loaded.is_keras3
        and site.parent is not None
        and site.attribute == "layer"
        and layer_facts(loaded.sites[site.parent].class_name).wraps == "steps"
    ):
        return deciding(loaded, site.parent)
    return index


def compute_dtype(loaded: LoadedModel, index: int) -> str | None:
    """Return the compute dtype of a layer; None if it is unknown."""
    return loaded.layers[deciding(loaded, index)].compute_dtype


def narrower_dtypes(loaded: LoadedModel, libraries: Iterable[str]) -> Mapping[tuple[str, ...], str]:
    """
    Return the dtype of each stored variable that its layer rounds, by the path of the variable.

    Custom classes, quantised layers and layers built with ``autocast=False`` may behave
    differently, so they are left out.
    """
    library_names = tuple(libraries)
    dtypes_by_path = {}
    for index in range(len(loaded.sites)):
        for name, tensor in loaded.placed.named_tensors(index):
            dtype = _rounding_dtype(loaded, index, name, library_names)
            if (
                dtype is not None
                and tensor.dtype in CASTABLE
                and dtypes.itemsize(dtype) < dtypes.itemsize(tensor.dtype)
            ):
                dtypes_by_path[tensor.path] = dtype
    return dtypes_by_path


def _rounding_dtype(
    loaded: LoadedModel, index: int, name: str, libraries: tuple[str, ...]
) -> str | None:
    """
    Return the dtype to which a layer rounds a variable before it computes; None if it does not.
    """
    site, layer = loaded.sites[index], loaded.layers[index]
    if (
        custom_classes.is_opaque(site)
        or layer.quantization is not None
        or layer.autocast is False
        or layer.policy is None
    ):
        return None
    computes = compute_dtype(loaded, index)
    if computes not in CASTABLE:
        return None
    kept = [
        dtype_support.variable_dtype(library, site.class_name, layer.policy, name)
        for library in libraries
    ]
    if any(kept):
        return None
    if (
        layer.variable_dtype == computes
    ):  # the values are rounded when they are loaded, before the layer computes
        return computes
    return (
        None
        if any(
            dtype_support.computes_as_stored(library, site.class_name, name)
            for library in libraries
        )
        else computes
    )
