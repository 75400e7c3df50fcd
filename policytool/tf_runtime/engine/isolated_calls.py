"""A layer called again, with what another one got: what it loses by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .layer_hooks import MASK

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    from .layer_hooks import Call, Tape


def again(tf: Any, reference: Call, candidate: Call, make: Callable[..., Any]) -> Any:
    """
    Return what a layer gives for the tensors that another call got, in the dtypes that its own call
    gets; None where that cannot be.

    All other arguments are its own: Keras 2 passes ``training`` and ``mask`` on where Keras 3 does
    not, and Keras 3 an absent mask under some policies alone.
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
    Return what a reference's layer gives for its own inputs, rounded to the dtypes that another
    call gets; None if nothing is rounded, or the calls get other numbers of tensors.
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
    Return whether a second call of a layer tells something, and changes nothing.

    A model is measured by its layers. A layer that carries a state from call to call would make
    something else of the next batch.
    """
    operations = tape.graph.get_operations()[call.start : call.stop]
    remembers = getattr(call.layer, "stateful", False) or any(
        operation.type.startswith(("Assign", "ResourceScatter")) for operation in operations
    )
    return not remembers and not isinstance(call.layer, tape.library.keras.Model)


def _like(tf: Any, tensor: Any, own: Any, masks: Mapping[int, Any]) -> Any:
    """
    Return a tensor in another's dtype, with the mask that it had when a layer was called with it.
    """
    like = tensor if tensor.dtype == own.dtype else tf.cast(tensor, own.dtype)
    return _masked(like, tensor, masks)


def _through(tf: Any, tensor: Any, dtype: Any, masks: Mapping[int, Any]) -> Any:
    """Return a tensor that was rounded to a dtype, in its own dtype."""
    return _masked(tf.cast(tf.cast(tensor, dtype), tensor.dtype), tensor, masks)


def _masked(like: Any, original: Any, masks: Mapping[int, Any]) -> Any:
    mask = masks.get(id(original))
    if mask is not None:
        setattr(like, MASK, mask)
    return like
