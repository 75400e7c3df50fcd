"""A layer called again, with what another one got: what it loses by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .layer_hooks import MASK

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    from .layer_hooks import Call, Tape


def again(tf: Any, given: Call, own: Call, make: Callable[..., Any]) -> Any:
    """
    Return what a layer gives for the tensors that another call got, in the dtypes that its own call
    gets; None where that cannot be.

    All other arguments are its own: Keras 2 passes ``training`` and ``mask`` on where Keras 3 does
    not, and Keras 3 an absent mask under some policies alone.
    """
    nest, is_tensor = tf.nest, tf.is_tensor
    flat = nest.flatten((own.args, own.kwargs))
    others = [one for one in nest.flatten((given.args, given.kwargs)) if is_tensor(one)]
    if len(others) != sum(map(is_tensor, flat)):
        return None
    tensors = iter(others)
    like = [_like(tf, next(tensors), one, given.masks) if is_tensor(one) else one for one in flat]
    args, kwargs = nest.pack_sequence_as((own.args, own.kwargs), like)
    return make(*args, **kwargs)


def can_be_called_again(tape: Tape, call: Call) -> bool:
    """
    Return whether a second call of a layer tells something, and changes nothing.

    A model is measured by its layers. A layer that carries a state from call to call would make
    something else of the next batch.
    """
    made = tape.graph.get_operations()[call.start : call.stop]
    remembers = getattr(call.layer, "stateful", False) or any(
        one.type.startswith(("Assign", "ResourceScatter")) for one in made
    )
    return not remembers and not isinstance(call.layer, tape.library.keras.Model)


def _like(tf: Any, given: Any, own: Any, masks: Mapping[int, Any]) -> Any:
    """
    Return a tensor in another's dtype, with the mask that it had when a layer was called with it.
    """
    like = given if given.dtype == own.dtype else tf.cast(given, own.dtype)
    mask = masks.get(id(given))
    if mask is not None:
        setattr(like, MASK, mask)
    return like
