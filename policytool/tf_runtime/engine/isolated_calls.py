"""A layer called again, with what another one got: what it loses by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .layer_hooks import MASK

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    from .layer_hooks import Call, Tape


def again(tf: Any, reference: Call, candidate: Call, make: Callable[..., Any]) -> Any:
    """
    Return the outputs of a candidate's layer for the input tensors of the reference's call, cast to
    the dtypes of its own inputs; None if the two calls have different numbers of tensors.

    All other arguments are those of its own call: Keras 2 passes ``training`` and ``mask`` on where
    Keras 3 does not, and Keras 3 passes an absent mask only under some policies.
    """
    nest, is_tensor = tf.nest, tf.is_tensor
    flat = nest.flatten((candidate.args, candidate.kwargs))
    others = [leaf for leaf in nest.flatten((reference.args, reference.kwargs)) if is_tensor(leaf)]
    if len(others) != sum(map(is_tensor, flat)):
        return None
    tensors = iter(others)
    like = [
        _like(tf, next(tensors), leaf, reference.masks) if is_tensor(leaf) else leaf
        for leaf in flat
    ]
    args, kwargs = nest.pack_sequence_as((candidate.args, candidate.kwargs), like)
    return make(*args, **kwargs)


def again_rounded(tf: Any, reference: Call, candidate: Call) -> Any:
    """
    Return the outputs of a reference's layer for its own inputs, rounded to the dtypes of the
    candidate's inputs; None if nothing is rounded, or the calls have different numbers of tensors.
    """
    nest, is_tensor = tf.nest, tf.is_tensor
    flat = nest.flatten((reference.args, reference.kwargs))
    others = [leaf for leaf in nest.flatten((candidate.args, candidate.kwargs)) if is_tensor(leaf)]
    if reference.make is None or len(others) != sum(map(is_tensor, flat)):
        return None
    narrow = iter(others)
    pairs = [(leaf, next(narrow) if is_tensor(leaf) else leaf) for leaf in flat]
    rounded = [
        _through(tf, leaf, other.dtype, reference.masks) if is_rounded(leaf, other) else leaf
        for leaf, other in pairs
    ]
    if all(after is before for after, before in zip(rounded, flat)):
        return None
    args, kwargs = nest.pack_sequence_as((reference.args, reference.kwargs), rounded)
    return reference.make(*args, **kwargs)


def is_rounded(leaf: Any, other: Any) -> bool:
    """Return whether a tensor loses digits in the dtype of another."""
    first, second = (getattr(tensor, "dtype", None) for tensor in (leaf, other))
    if not (getattr(first, "is_floating", False) and getattr(second, "is_floating", False)):
        return False
    return bool(getattr(second, "size", 0) < getattr(first, "size", 0))


def can_be_called_again(tape: Tape, call: Call) -> bool:
    """
    Return whether a second call of a layer is useful and has no side effects.

    Models are excluded: their layers are measured. A layer that keeps a state between calls would
    return other values for the next batch.
    """
    operations = tape.graph.get_operations()[call.start : call.stop]
    remembers = getattr(call.layer, "stateful", False) or any(
        operation.type.startswith(("Assign", "ResourceScatter")) for operation in operations
    )
    return not remembers and not isinstance(call.layer, tape.library.keras.Model)


def _like(tf: Any, tensor: Any, own: Any, masks: Mapping[int, Any]) -> Any:
    """
    Return a tensor cast to another tensor's dtype, with the mask that it had as a layer's input.
    """
    like = tensor if tensor.dtype == own.dtype else tf.cast(tensor, own.dtype)
    return _masked(like, tensor, masks)


def _through(tf: Any, tensor: Any, dtype: Any, masks: Mapping[int, Any]) -> Any:
    """Return a tensor in its own dtype, with its values rounded to another dtype."""
    return _masked(tf.cast(tf.cast(tensor, dtype), tensor.dtype), tensor, masks)


def _masked(like: Any, original: Any, masks: Mapping[int, Any]) -> Any:
    mask = masks.get(id(original))
    if mask is not None:
        setattr(like, MASK, mask)
    return like
