"""
The inputs of a model: the structure with which it is called; the name, shape and dtype of each; and
the places of their elements in tensors that layers make from them without computing (reshaped,
permuted, cut, padded or joined with others).

The places are an array in the shape of the tensor without the batch; dimensions of unknown size
have size 1. It contains the index of an element of the input, or NOTHING for all other values.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import numpy as np

from ..facts import facts, is_embedding
from ..library import Refused, is_revived, paths

if TYPE_CHECKING:
    from typing import Any, Iterator, Sequence

    from ..library import Library

DENSE, SPARSE, RAGGED = "dense", "sparse", "ragged"
_IDS_RANK = 2
"""The number of dimensions of a batch of sequences of ids."""


class Slot:
    """One input."""

    def __init__(
        self, name: str, shape: Sequence[int | None] | None, dtype: str, kind: str = DENSE
    ) -> None:
        self.name = name
        self.shape = None if shape is None else list(shape)
        """
        The shape with the batch first; None for an unknown size, and None instead of the shape for
        an unknown rank.
        """

        self.dtype = dtype
        self.kind = kind

    @classmethod
    def from_tensor(cls, name: str, tensor: Any, kind: str = DENSE) -> Slot:
        """Return the slot of a tensor or of its spec."""
        shape = tensor.shape
        dims = (
            None
            if getattr(shape, "rank", 0) is None
            else [None if size is None else int(size) for size in shape]
        )
        return cls(name, dims, str(getattr(tensor.dtype, "name", tensor.dtype)), kind)

    @property
    def is_open(self) -> bool:
        """Whether a size other than the batch is unknown; ragged inputs need no size of rows."""
        return self.shape is None or (self.kind != RAGGED and None in self.shape[1:])

    def rows(self, batch: int) -> int:
        """Return the number of rows of this input in one batch."""
        fixed = self.shape[0] if self.shape else None
        return batch if fixed is None and self.shape != [] else fixed or 1


class NestedSlots:
    """The inputs of a model in the structure with which it is called."""

    def __init__(self, library: Library, nested: Any, slots: Sequence[Slot]) -> None:
        self.nested = nested
        """A structure with one leaf for each slot."""

        self.slots = list(slots)
        self._nest = library.tf.nest

    def packed(self, flat: Sequence[Any]) -> Any:
        """Return one value for each slot in the structure that the call takes."""
        return self._nest.pack_sequence_as(self.nested, list(flat))


def model_inputs(library: Library, model: Any) -> NestedSlots:
    """
    Return the inputs of a model, in the order in which TensorFlow flattens them.

    A functional model declares its inputs. Another model has those with which it was called or
    built when it was saved: Keras 2 keeps their specs, and Keras 3 only their shapes.

    :raises Refused: if a model does not record its inputs, or takes several arguments.
    """
    nested = _declared_inputs(model)
    if nested is None:
        nested = _slots_of_call(model)
    if nested is None:
        nested = _slots_of_build(model)
    if isinstance(nested, (list, tuple)) and len(nested) == 1:
        nested = nested[0]  # every Keras takes the tensor itself in its place
    leaves = [(path, leaf) for path, leaf in _leaves(nested, ())]
    slots = [_slot(path, leaf, alone=len(leaves) == 1) for path, leaf in leaves]
    for position, slot in enumerate(slots):
        if any(slot.name == other.name for other in slots[:position]):
            slot.name = "{}_{}".format(slot.name, position)
    return NestedSlots(library, nested, slots)


def signature_inputs(library: Library, signature: Any) -> NestedSlots:
    """Return the inputs of a signature: a dict by name."""
    specs = dict(sorted(signature.structured_input_signature[1].items()))
    return NestedSlots(
        library, specs, [_slot((name,), spec, alone=False) for name, spec in specs.items()]
    )


def functional_graph(model: Any) -> Any:
    """
    Return the object with the nodes of a functional model or Sequential; None for other layers.
    """
    inner = getattr(model, "_functional", None)  # a Sequential of Keras 3
    for candidate in (model, inner):
        if (
            candidate is not None
            and getattr(candidate, "_nodes_by_depth", None)
            and getattr(candidate, "inputs", None)
        ):
            return candidate
    return None


def are_ids(shape: Sequence[int | None], model: Any) -> bool:
    """
    Return whether an input of a shape may contain ids, for a model without a graph.

    It may if an Embedding was built with this shape, or if no Embedding records its build shape.
    Ids are valid inputs of other layers too.
    """
    tables = [layer for _, layer in paths(model) if is_embedding(layer)]
    built = [_built_with(layer) for layer in tables]
    known = [
        list(build_shape)[1:] for build_shape in built if isinstance(build_shape, (list, tuple))
    ]
    return len(shape) <= _IDS_RANK and bool(tables) and (not known or list(shape)[1:] in known)


def _declared_inputs(model: Any) -> Any:
    functional = functional_graph(model)
    if functional is None:
        return None
    for name in ("_inputs_struct", "_nested_inputs"):
        nested = getattr(functional, name, None)
        if nested is not None:
            return nested
    return list(functional.inputs)


def _slots_of_call(model: Any) -> Any:
    """
    Return slots from the specs of the call that Keras 2 saved with a model; its batch size is not a
    property of the model.
    """
    saved = model.save_spec() if hasattr(model, "save_spec") else None
    if saved is None or not saved[0]:
        nested = getattr(model, "_saved_model_inputs_spec", None)
    elif len(saved[0]) > 1:
        raise _several(model, len(saved[0]))
    else:
        nested = saved[0][0]
    return (
        None
        if nested is None
        else _slots_of_specs(
            nested, casts=getattr(model, "_autocast", False) and not is_revived(model)
        )
    )


def _slots_of_build(model: Any) -> Any:
    """
    Return slots from the build shapes of the model, or of its first layer that has any.
    """
    needed = [
        parameter
        for parameter in inspect.signature(model.call).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if len(needed) > 1:
        raise _several(model, len(needed))
    for _, layer in paths(model):
        shapes = _built_with(layer)
        if shapes is not None:
            return _slots_of_shapes(shapes, model)
    raise Refused(
        "no-inputs",
        ("the inputs of {} are unknown: its file contains no build shape").format(model.name),
    )


def _slots_of_shapes(shapes: Any, model: Any) -> Any:
    """
    Return slots for shapes. Their dtypes are not recorded, so an input with the build shape of an
    Embedding is assumed to contain its ids.
    """
    if hasattr(shapes, "as_list"):
        shapes = shapes.as_list()
    if isinstance(shapes, (list, tuple)) and all(
        size is None or isinstance(size, int) for size in shapes
    ):
        dtype = (
            "int32"
            if are_ids(shapes, model)
            else str(getattr(model, "variable_dtype", None) or "float32")
        )
        return Slot("", [None, *shapes[1:]], dtype)
    if isinstance(shapes, dict):
        return {key: _slots_of_shapes(inner, model) for key, inner in shapes.items()}
    return [_slots_of_shapes(inner, model) for inner in shapes]


def _built_with(layer: Any) -> Any:
    """Return the build shapes of a layer; None if it does not record them."""
    shapes = getattr(layer, "_build_shapes_dict", None)
    build_shapes: Any = (
        next(iter(shapes.values()))
        if isinstance(shapes, dict) and shapes
        else getattr(layer, "_build_input_shape", None)
    )
    return build_shapes.as_list() if hasattr(build_shapes, "as_list") else build_shapes


def _slots_of_specs(nested: Any, *, casts: bool) -> Any:
    """
    Return slots for the specs of a call, which Keras 2 records after casting the inputs of a model
    with a mixed policy to 16 bits.
    """
    if isinstance(nested, dict):
        return {key: _slots_of_specs(inner, casts=casts) for key, inner in nested.items()}
    if isinstance(nested, (list, tuple)):
        return [_slots_of_specs(inner, casts=casts) for inner in nested]
    slot = _slot((), nested, alone=True)
    dtype = "float32" if casts and slot.dtype in ("float16", "bfloat16") else slot.dtype
    return Slot(
        "", None if slot.shape is None else [None, *slot.shape[1:]], dtype, slot.kind
    )  # the names of such specs are numbers


def _several(model: Any, count: int) -> Refused:
    """Return the error about a model with several arguments."""
    text = (
        "{} is called with {} arguments; policytool can create inputs only for "
        "models with one argument, which may be a list or a dict"
    )
    return Refused("inputs", text.format(model.name, count))


def _leaves(nested: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each leaf with the keys that lead to it, in the order of ``tf.nest.flatten``."""
    if isinstance(nested, dict):
        for key in sorted(nested):
            yield from _leaves(nested[key], (*path, str(key)))
    elif isinstance(nested, (list, tuple)) and not hasattr(nested, "dtype"):
        for inner in nested:
            yield from _leaves(inner, path)
    else:
        yield path, nested


def _slot(path: tuple[str, ...], leaf: Any, *, alone: bool) -> Slot:
    """Return the slot of a leaf of a call's inputs."""
    name = "/".join(path) or _name(leaf) or ("input" if alone else "inputs")
    if isinstance(leaf, Slot):
        return Slot(name, leaf.shape, leaf.dtype, leaf.kind)
    type_name = type(getattr(leaf, "type_spec", leaf)).__name__
    kinds = [
        kind
        for kind in (SPARSE, RAGGED)
        if kind.capitalize() in type_name or getattr(leaf, kind, False) is True
    ]
    return Slot.from_tensor(name, leaf, kinds[0] if kinds else DENSE)


def _name(leaf: Any) -> str:
    """Return the name of the input layer of a symbolic tensor, or the name of a spec."""
    history = getattr(leaf, "_keras_history", None)
    maker = getattr(history, "operation", None) or (history[0] if history else None)
    return str(getattr(maker, "name", None) or getattr(leaf, "name", None) or "").partition(":")[0]


NOTHING = -1

MOST_ELEMENTS = 2**22
"""
The maximum number of elements of an input whose places are known: an image of 1024 by 1024 pixels
has 3 million.
"""

_RESHAPING_OPS = frozenset({"reshape", "expanddims", "squeeze", "flatten", "ravel"})
_JOINING_OPS = frozenset({"concat", "concatv2", "concatenate"})


def call_arguments(node: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a call, in both generations of Keras."""
    arguments = getattr(node, "arguments", None)
    values = getattr(arguments, "args", None) or getattr(node, "call_args", None) or ()
    keyword_arguments = (
        getattr(arguments, "kwargs", None) or getattr(node, "call_kwargs", None) or {}
    )
    return list(values), dict(keyword_arguments)


def open_as_one(shape: Any) -> tuple[int, ...] | None:
    """Return a shape without its batch, with 1 for unknown sizes; None if the rank is unknown."""
    if shape is None or getattr(shape, "rank", 0) is None:
        return None
    return tuple(1 if size is None else int(size) for size in list(shape)[1:])


def elements_of_input(shape: Any) -> Any:
    """
    Return the places of the elements of an input; None if it is too large or its rank is unknown.
    """
    sizes = open_as_one(shape)
    if sizes is None or np.prod(sizes) > MOST_ELEMENTS:
        return None
    return np.arange(int(np.prod(sizes))).reshape(sizes)


def elements_after(layer: Any, call: tuple[str, Any], arrays: Sequence[Any], shape: Any) -> Any:
    """
    Return the array of element indexes of the output of a layer or operation; None if unknown.

    :param call: the operation's name, in lower case and without underscores, empty for a layer;
        and the node with the arguments of the call, None if there is none
    :param arrays: the array of each input tensor; None if it is unknown
    :param shape: the shape of the output tensor
    """
    sizes = open_as_one(shape)
    if sizes is None or not arrays or any(array is None for array in arrays):
        return None
    try:
        elements = _move_elements(layer, call, arrays, sizes)
    except (IndexError, TypeError, ValueError):
        return None  # arguments of a kind that no array takes, such as tensors
    return elements if elements is not None and elements.shape == sizes else None


def _move_elements(
    layer: Any, call: tuple[str, Any], arrays: Sequence[Any], sizes: tuple[int, ...]
) -> Any:
    """
    Return the positions of input elements in the output of a layer or operation that only moves
    them.
    """
    (symbol, node), entry = call, facts(layer)
    move_name = entry.get("moves")
    if move_name == "joined" or symbol in _JOINING_OPS:
        axis = getattr(layer, "axis", None)
        axis = int(call_arguments(node)[1].get("axis", -1) if axis is None else axis)
        return np.concatenate(arrays, axis=axis if axis < 0 else axis - 1)
    first = arrays[0]
    if move_name == "reshaped" or symbol in _RESHAPING_OPS:
        if getattr(layer, "data_format", None) == "channels_first" and first.ndim > 1:
            first = np.moveaxis(first, 0, -1)
        return first.reshape(sizes)
    if move_name == "permuted":
        return np.transpose(first, [axis - 1 for axis in layer.dims])
    if move_name == "repeated":
        return np.repeat(first[np.newaxis], layer.n, axis=0)
    if move_name == "indexed" or symbol == "getitem":
        return first[np.newaxis][_key(node)][0]
    if move_name == "padded":
        ends = _by_axis(layer, layer.padding, entry["rank"] - 2, first.ndim)
        return np.pad(first, ends, constant_values=NOTHING)
    if move_name == "cut":
        ends = _by_axis(layer, layer.cropping, entry["rank"] - 2, first.ndim)
        kept = (slice(start, size - end) for (start, end), size in zip(ends, first.shape))
        return first[tuple(kept)]
    return first  # unchanged; the caller rejects it if the output has another shape


def _by_axis(layer: Any, ends: Any, dimensions: int, rank: int) -> list[tuple[int, int]]:
    """
    Return the sizes that a layer adds to, or removes from, both ends of each axis.

    :param ends: its argument, for the dimensions without those of batch and channels
    """
    pairs = [tuple(ends)] if dimensions == 1 else [tuple(pair) for pair in ends]
    is_first = getattr(layer, "data_format", None) == "channels_first"
    before, after = [(0, 0)] * is_first, [(0, 0)] * (rank - dimensions - is_first)
    return [
        *before,
        *((int(added_before), int(added_after)) for added_before, added_after in pairs),
        *after,
    ]


def _key(node: Any) -> tuple[Any, ...]:
    """
    Return the index of an indexing operation; Keras 2 stores slices as dicts.

    :raises TypeError: for an index of the batch, or one that is not a constant.
    """
    values, keyword_arguments = call_arguments(node)
    key = keyword_arguments.get(
        "slice_spec", keyword_arguments.get("key", values[1] if len(values) > 1 else None)
    )
    parts = list(key) if isinstance(key, (list, tuple)) else [key]
    index = tuple(
        slice(part.get("start"), part.get("stop"), part.get("step"))
        if isinstance(part, dict)
        else part
        for part in parts
    )
    if index[0] not in (slice(None), Ellipsis) or not all(
        part is None or part is Ellipsis or isinstance(part, (int, slice)) for part in index
    ):
        raise TypeError("an index that is not the same for all rows")
    return index
