"""
The dtype, the shape and the values of a tensor of TensorFlow, JAX or torch, or of an array of
NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any


def is_eager(tf: Any) -> bool:
    """Return whether this is a backend that runs op by op, and not TensorFlow."""
    return bool(getattr(tf, "runs_op_by_op", False))


def dtype_name(value: Any) -> str:
    """Return the name of a dtype, or of the dtype of a tensor."""
    dtype = getattr(value, "dtype", value)
    name = getattr(dtype, "name", None)
    return str(name if isinstance(name, str) else dtype).rpartition(".")[2]


def is_floating(tensor: Any) -> bool:
    """Return whether a tensor has floats."""
    return hasattr(tensor, "dtype") and dtype_name(tensor).startswith(("float", "bfloat"))


def item_bytes(tensor: Any) -> int:
    """Return the size of an element of a tensor in bytes."""
    return int(getattr(tensor.dtype, "size", None) or tensor.dtype.itemsize)


def is_narrow(tensor: Any) -> bool:
    """Return whether a tensor has floats of fewer than 32 bits."""
    return is_floating(tensor) and dtype_name(tensor) not in ("float32", "float64")


def has_rank(tensor: Any) -> bool:
    """Return whether the number of dimensions of a tensor is known."""
    return getattr(tensor.shape, "rank", 0) is not None


def tensor_shape(tensor: Any) -> list[int | None]:
    """
    Return the shape of a tensor; empty if its rank is unknown, with None for unknown dimensions.
    """
    if not has_rank(tensor):
        return []
    return [None if size is None else int(size) for size in tensor.shape]


def are_compatible(first: Any, second: Any) -> bool:
    """Return whether two tensors may have the same shape."""
    if hasattr(first.shape, "is_compatible_with"):
        return bool(first.shape.is_compatible_with(second.shape))
    return tuple(first.shape) == tuple(second.shape)


def to_array(tensor: Any) -> Any:
    """
    Return a tensor as an array in a dtype in which NumPy computes well: float32 instead of narrower
    floats.
    """
    array = values_of(tensor)
    return array.astype("float32") if is_narrow(tensor) else array


def values_of(tensor: Any) -> Any:
    """Return a tensor as an array."""
    if hasattr(tensor, "detach"):  # torch has no arrays of bfloat16, nor of tensors on a GPU
        is_bfloat16 = dtype_name(tensor) == "bfloat16"
        tensor = (tensor.detach().float() if is_bfloat16 else tensor.detach()).cpu()
    return np.asarray(tensor)
