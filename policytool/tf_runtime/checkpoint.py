"""
Variables from a saved model's checkpoint into a model that was built anew.

The object graph in the checkpoint and the live objects are walked side by side, by the names of the
edges, as TensorFlow itself restores; but values are cast where the new variable has another dtype,
which TensorFlow refuses.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from typing import Any, Iterator

    from .library import Library

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
VALUE = "VARIABLE_VALUE"
_OWN = ("signatures", "keras_api")
"""Edges of a SavedModel's root that lead to nothing a model tracks under the same name."""

_PLACED = "layer-"
_COUNTED = "layer_with_weights-"
_WRAPPED = ("base_optimizer", "inner_optimizer", "_optimizer", "optimizer")
"""Edges from an optimizer that scales the loss to the one that does the work."""


class Restored:
    """What came over, and what did not."""

    def __init__(self) -> None:
        self.taken: dict[str, Any] = {}
        """Key in the checkpoint to the live variable that has its value now."""
        self.cast: list[str] = []
        self.left: list[str] = []
        """Keys of values that nothing live has a place for."""


class Checkpoint:
    """The variables of a SavedModel, and the objects that hold them."""

    def __init__(self, library: Library, prefix: str) -> None:
        self.library = library
        self.reader = library.tf.train.load_checkpoint(prefix)
        self.dtypes = self.reader.get_variable_to_dtype_map()
        self.shapes = self.reader.get_variable_to_shape_map()
        self.nodes = (
            _nodes(self.reader.get_tensor(OBJECT_GRAPH)) if OBJECT_GRAPH in self.dtypes else []
        )

    def restore(self, model: Any, optimizer: Any) -> Restored:
        """Assign to every live variable the value that the checkpoint has for it."""
        restored = Restored()
        live = self._live(model)
        for number, trackable in live.items():
            key = self.nodes[number].values.get(VALUE)
            if key is not None and _is_variable(trackable) and self._fits(key, trackable):
                self._assign(restored, key, trackable)
        self._slots(restored, live, optimizer)
        restored.left = [
            key
            for key in self.dtypes
            if key != OBJECT_GRAPH and key not in restored.taken and key.endswith(VALUE)
        ]
        return restored

    def _live(self, model: Any) -> dict[int, Any]:
        """Return the live object of each node number that is reachable by the same names."""
        live = {0: model}
        pending = deque([0])
        while pending:
            number = pending.popleft()
            edges = self.nodes[number].children
            by_place = any(name.startswith(_PLACED) for name, _ in edges)
            for name, child in edges:
                if by_place and name.startswith(_COUNTED):
                    # counts layers with variables, and a lookup with a table of its own is one of
                    # them: the same number may be another layer
                    continue
                if child not in live and not (number == 0 and name in _OWN):
                    trackable = _lookup(live[number], name)
                    if trackable is not None:
                        live[child] = trackable
                        pending.append(child)
        return live

    def _slots(self, restored: Restored, live: dict[int, Any], optimizer: Any) -> None:
        """Restore the state that an optimizer of TF 2.10 and older keeps for each variable."""
        optimizer = _unwrapped(optimizer)  # one that scales the loss has no slots itself
        if not hasattr(optimizer, "get_slot"):
            return
        for node in self.nodes:
            for original, slot_name, slot in node.slots:
                key = self.nodes[slot].values.get(VALUE)
                if key is None or original not in live:
                    continue
                try:
                    variable = optimizer.get_slot(live[original], slot_name)
                except (KeyError, ValueError, AttributeError):
                    continue  # an optimizer of another kind, or one that wraps it
                if variable is not None and self._fits(key, variable):
                    self._assign(restored, key, variable)

    def _fits(self, key: str, variable: Any) -> bool:
        return key in self.dtypes and list(variable.shape) == list(self.shapes[key])

    def _assign(self, restored: Restored, key: str, variable: Any) -> None:
        dtype = variable.dtype.base_dtype
        value = self.reader.get_tensor(key)
        if dtype != self.dtypes[key]:
            value = cast(value, dtype.as_numpy_dtype)
            restored.cast.append(key)
        raw = getattr(
            variable, "_variable", variable
        )  # an AutoCastVariable casts what it is given; its own variable does not
        raw.assign(value)
        restored.taken[key] = variable


def cast(values: Any, dtype: Any) -> Any:
    """
    Return values in another dtype, rounded once. It uses NumPy's casts, because TensorFlow's
    convert through float32 and flush subnormal numbers.
    """
    numpy_dtype = np.dtype(dtype)
    array = np.asarray(values)
    if array.dtype == np.float64 and numpy_dtype.name == "bfloat16":
        with np.errstate(all="ignore"):
            array = _round_to_odd(array)
    with np.errstate(all="ignore"):
        return array.astype(numpy_dtype)


class Node:
    """One object of the checkpoint's graph."""

    def __init__(self, children: Any, values: Any, slots: Any) -> None:
        self.children = children
        self.values = values
        self.slots = slots


def _nodes(serialised: bytes) -> list[Node]:
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph()
    graph.ParseFromString(serialised)
    return [
        Node(
            [(child.local_name, child.node_id) for child in node.children],
            {attribute.name: attribute.checkpoint_key for attribute in node.attributes},
            [
                (slot.original_variable_node_id, slot.slot_name, slot.slot_variable_node_id)
                for slot in node.slot_variables
            ],
        )
        for node in graph.nodes
    ]


def _lookup(trackable: Any, name: str) -> Any:
    """Return what an object tracks under a name."""
    if not hasattr(trackable, "_lookup_dependency"):
        return None
    if hasattr(trackable, "_maybe_initialize_trackable"):
        trackable._maybe_initialize_trackable()  # noqa: SLF001  # a layer that never tracked anything has no table of names yet
    dependency = trackable._lookup_dependency(name)  # noqa: SLF001  # how TensorFlow itself restores
    inner = _unwrapped(trackable)
    if dependency is None and inner is not trackable:
        return _lookup(inner, name)  # the file's optimizer scaled no loss, and this one does
    if dependency is None and name in _WRAPPED and hasattr(trackable, "apply_gradients"):
        return trackable  # the other way round
    return dependency


def _unwrapped(optimizer: Any) -> Any:
    """Return the optimizer in one that scales the loss."""
    for inner in ("inner_optimizer", "_optimizer"):
        optimizer = getattr(optimizer, inner, optimizer)
    return optimizer


def _is_variable(trackable: Any) -> bool:
    return (
        hasattr(trackable, "assign") and hasattr(trackable, "dtype") and hasattr(trackable, "shape")
    )


def _round_to_odd(array: Any) -> Any:
    """
    Return float64 as float32, rounded to odd, after which rounding to bfloat16 gives what a single
    rounding would.
    """
    nearest = array.astype(np.float32)
    inexact = np.isfinite(array) & (nearest.astype(np.float64) != array)
    toward_zero = np.where(
        np.abs(nearest.astype(np.float64)) > np.abs(array),
        np.nextafter(nearest, np.float32(0)),
        nearest,
    )
    bits = np.asarray(toward_zero, dtype=np.float32).view(np.uint32)
    return np.where(inexact, bits | 1, bits).astype(np.uint32).view(np.float32)


def unrestored_names(model: Any, restored: Restored) -> Iterator[str]:
    """Yield the names of the model's variables that got no value."""
    taken = {id(getattr(variable, "_variable", variable)) for variable in restored.taken.values()}
    for variable in model.variables:
        if id(getattr(variable, "_variable", variable)) not in taken:
            yield str(variable.name)
