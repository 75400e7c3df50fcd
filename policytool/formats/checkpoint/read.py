"""
TensorFlow checkpoints, as ``save_weights`` with ``save_format="tf"``, ``tf.train.Checkpoint``, and
TF 1's ``Saver`` write them.

A checkpoint consists of several files. policytool reads its index; the other files lead to it.

The object graph of a TF 2 checkpoint shows which tensors are weights of the model, and their names
in the layers. A tensor is a weight if a path that avoids optimizers leads to it, whatever its key
(in Keras 3, the keys of kernels contain the optimizer). A TF 1 checkpoint has only names; the name
of an optimizer's variable begins with the name of the weight it belongs to.

The module also reads the values of checkpoints, including those in SavedModels.
"""

from __future__ import annotations

from collections import Counter, deque
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from policytool.formats.casting import arrays_of_chunks, numpy_dtype
from policytool.formats.checkpoint import INDEX, prefix_of
from policytool.formats.checkpoint.bundle import (
    OBJECT_GRAPH_KEY,
    STRING,
    VALUE,
    check_limit,
    open_bundle,
)
from policytool.formats.document import (
    DamagedValuesError,
    Document,
    Layout,
    Observation,
    Tensor,
    Values,
    ValuesError,
)
from policytool.support import limits, steps
from policytool.support.errors import BundleError
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from contextlib import ExitStack

    from policytool.formats.base import Probe
    from policytool.formats.checkpoint.bundle import (
        Attribute,
        Bundle,
        Entry,
        ObjectGraph,
        Trackable,
    )
    from policytool.formats.document import Array
    from policytool.support.files.remote_path import AnyPath


def read(probe: Probe) -> Document:
    """Return the document of a checkpoint."""
    if not probe.path.name.endswith(INDEX):
        raise probe.failure(*_no_index(probe))
    try:
        bundle = open_bundle(prefix(probe))
        shard_errors = tuple(bundle.lacking())
        weights, others = name_entries(bundle.entries, _objects(bundle, shard_errors))
    except BundleError as error:
        raise probe.failure(error.code, error.message) from error
    return Document(
        path=probe.shown,
        format="weights",
        layout=Layout.SCOPES,
        tensors=tuple(_tensor(path, bundle, key) for key, path in weights.items()),
        state=tuple(_tensor(tuple(key.split("/")), bundle, key) for key in others),
        observations=tuple(
            Observation(code=error.code, message=error.message) for error in shard_errors
        ),
    )


def prefix(probe: Probe) -> AnyPath:
    """
    Return the prefix of the checkpoint of an index: the common beginning of its file names.
    """
    return probe.path.with_name(probe.path.name.removesuffix(INDEX))


def _tensor(path: tuple[str, ...], bundle: Bundle, key: str) -> Tensor:
    entry = bundle.entries[key]
    return Tensor(path=path, shape=entry.shape, dtype=entry.dtype, key=key)


def _objects(bundle: Bundle, shard_errors: tuple[BundleError, ...]) -> ObjectGraph | None:
    """
    Return the object graph. Return None if it cannot be read and shards are missing, because the
    index is still useful.
    """
    try:
        return bundle.objects()
    except BundleError:
        if not shard_errors:
            raise
        return None


def _no_index(probe: Probe) -> tuple[str, str]:
    """
    Return the code and the message for a file of a checkpoint without the name of an index.
    """
    stem = prefix_of(probe.path.name, probe.head)
    if stem is None:
        return (
            "checkpoint-v1",
            (
                "looks like the index of a checkpoint, but is not named PREFIX.index; if "
                "it is a V1 checkpoint, save it again as V2"
            ),
        )
    index = probe.path.with_name(f"{stem}{INDEX}")
    advice = (
        f"specify its index, {index.name}"
        if opening.is_file(index)
        else f"copy its index, {index.name}, to the same directory"
    )
    return "checkpoint-part", f"is only part of a checkpoint; {advice}"


_ROOT: Final = 0
_ATTRIBUTES: Final = ".ATTRIBUTES"
_CONFIG: Final = "OBJECT_CONFIG_JSON"
"""An attribute of Keras' objects in TF 1.13 to 2.1, which is not a variable."""

_NOT_LAYERS: Final = frozenset({"optimizer", "save_counter", "keras_api"})
"""
Edges from a model, or a ``tf.train.Checkpoint``, to objects that are not layers; ``keras_api``
leads to metrics.
"""

_OPTIMIZERS: Final = (
    {"iter", "learning_rate"},
    {"_iterations", "_learning_rate"},
    {"_iterations", "_variables"},
    {"base_optimizer"},
    {"inner_optimizer"},
)
"""
The children of optimizers: up to TF 2.10, from TF 2.11, in Keras 3, and of the two optimizers that
scale losses.
"""

_TRAINED: Final = "_trainable_variables"
"""The model's weights among the children of a Keras 3 optimizer."""

_COUNTERS: Final = frozenset({"global_step", "beta1_power", "beta2_power"})
"""
Variables of TF 1 training, not of layers (``tf.train.get_global_step``, ``AdamOptimizer``).
"""


_Place = tuple[int, tuple[str, ...]]
"""The parent of an object, and the names on the path from the parent to the object."""


def name_entries(
    entries: Mapping[str, Entry], graph: ObjectGraph | None
) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
    """
    Return the names of the weights in a checkpoint, and the keys of its other entries; ``graph`` is
    None for TF 1, and if it cannot be read.

    The names start at the layer and are in the order of the model, if it is known. The other keys
    belong to the optimizer, to metrics or to training.

    :raises BundleError: if objects are nested too deeply, or if the keys are too long.
    """
    check_limit(limits.PATH_CHARACTERS, sum(map(len, entries)), "has keys of")
    check_limit(
        limits.OBJECT_DEPTH,
        max((key.count("/") for key in entries), default=0),
        "nests objects to a depth of",
    )
    if graph is not None and graph.nodes:
        weights = _names_from_objects(entries, graph)
        graph_keys = {attribute.key for node in graph.nodes for attribute in node.attributes}
        weights.update(
            (key, tuple(key.split("/")))
            for key in entries
            if key not in graph_keys and key != OBJECT_GRAPH_KEY
        )
    elif OBJECT_GRAPH_KEY in entries:
        weights = dict(_names_from_keys(entries))
    else:
        weights = dict(_names_from_scopes(entries))
    return weights, tuple(
        key
        for key in entries
        if key not in weights and key != OBJECT_GRAPH_KEY and not key.endswith(_CONFIG)
    )


def _names_from_objects(
    entries: Mapping[str, Entry], graph: ObjectGraph
) -> dict[str, tuple[str, ...]]:
    """
    Return the weights in the object graph, under the names of their variables if a name contains a
    layer and is unique; otherwise under their object paths.
    """
    place_by_node = _places(graph)
    attributes_by_key: dict[str, tuple[int, Attribute]] = {}
    for number in place_by_node:
        attributes_by_key.update(
            (attribute.key, (number, attribute))
            for attribute in graph.nodes[number].attributes
            if attribute.key in entries and attribute.name != _CONFIG
        )
    name_counts = Counter(attribute.full_name for _, attribute in attributes_by_key.values())
    return {
        key: tuple(attribute.full_name.split("/"))
        if name_counts[attribute.full_name] == 1 and "/" in attribute.full_name
        else _path(place_by_node, number, attribute)
        for key, (number, attribute) in attributes_by_key.items()
    }


def _path(
    place_by_node: Mapping[int, _Place], number: int, attribute: Attribute
) -> tuple[str, ...]:
    """
    Return the names on the path to an object, and to an attribute other than its value, such as the
    keys of a lookup table.
    """
    names = [] if attribute.name == VALUE else [attribute.name]
    while number != _ROOT:
        number, name = place_by_node[number]
        names[:0] = name
        check_limit(limits.OBJECT_DEPTH, len(names), "nests objects to a depth of", counting=True)
    return tuple(names) or (attribute.name,)


def _places(graph: ObjectGraph) -> dict[int, _Place]:
    """
    Return the objects, and their parents, on paths from the root that contain only layers; the
    nearest objects come first.

    The last objects are weights that only an optimizer leads to, because a Keras 3 model has no
    edges to layers in a list of a subclassed model.
    """
    is_optimizer = [_is_optimizer(node) for node in graph.nodes]
    passed: set[int] = set()
    """Visited objects that are not layers; the weights below them are already queued."""
    place_by_node: dict[int, _Place] = {}
    pending: deque[tuple[int, _Place]] = deque([(_ROOT, (_ROOT, ()))])
    last: deque[tuple[int, _Place]] = deque()
    while pending or last:
        number, place = (pending or last).popleft()
        if number in place_by_node:
            continue
        place_by_node[number] = place
        steps.spend(1 + len(graph.nodes[number].children), walk="edges of objects")
        for name, child in graph.nodes[number].children:
            if name not in _NOT_LAYERS and not is_optimizer[child]:
                pending.append((child, (number, (name,))))
            elif child not in passed:
                passed.add(child)
                last.extend(
                    (inner, (number, (name, child_number)))
                    for child_number, inner in graph.nodes[child].children
                    if child_number == _TRAINED
                )
    return place_by_node


def _is_optimizer(node: Trackable) -> bool:
    names = {name for name, _ in node.children}
    return bool(node.slots) or any(names >= optimizer_names for optimizer_names in _OPTIMIZERS)


def _names_from_keys(keys: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """
    Yield the weights by their keys, which are object paths, if the object graph cannot be read.
    """
    for key in keys:
        path = tuple(key.partition(f"/{_ATTRIBUTES}/")[0].split("/"))
        left_out = ".OPTIMIZER_SLOT" in path or (_NOT_LAYERS & set(path) and _TRAINED not in path)
        if not left_out and key != OBJECT_GRAPH_KEY and not key.endswith(_CONFIG):
            yield key, path


def _names_from_scopes(entries: Mapping[str, Entry]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """
    Yield the weights of TF 1, whose keys are names. The optimizer's variable for ``dense/kernel``
    is ``dense/kernel/Adam`` and has the same shape.
    """
    for key, entry in entries.items():
        kept_for = entries.get(key.rpartition("/")[0])
        if (kept_for is None or kept_for.shape != entry.shape) and key.rpartition("/")[
            2
        ] not in _COUNTERS:
            yield key, tuple(key.split("/"))


def open_values(probe: Probe, _document: Document, _stack: ExitStack) -> Values:
    """Return the values of a model; its files are opened at the first read."""
    return CheckpointValues(prefix(probe))


class CheckpointValues(Values):
    """
    The values of one checkpoint, which is opened at the first read.

    The tensors are in the order of the object graph, if the checkpoint has one.
    """

    def __init__(self, path: AnyPath) -> None:
        self._path = path

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """Yield a tensor's values; see :class:`policytool.formats.document.Values`."""
        try:
            entry = _entry(self._bundle, self._key(tensor), tensor)
            if entry.dtype == STRING:
                yield np.array(self._bundle.strings(entry), dtype=object)
            else:
                yield from arrays_of_chunks(self._bundle.chunks(entry), numpy_dtype(entry.dtype))
        except BundleError as error:
            kind = DamagedValuesError if error.code in _DAMAGED else ValuesError
            raise kind(error.message) from error
        except OSError as error:
            raise ValuesError(
                f"the checkpoint cannot be read: {error.strerror or error}"
            ) from error

    def _key(self, tensor: Tensor) -> str | None:
        """Return the key of a tensor in the checkpoint."""
        return tensor.key

    @cached_property
    def _bundle(self) -> Bundle:
        return open_bundle(self._path)


_DAMAGED: Final = frozenset({"checkpoint-damaged", "truncated"})
"""The codes of errors about values that TensorFlow does not restore."""


def _entry(bundle: Bundle, key: str | None, tensor: Tensor) -> Entry:
    """Return the entry of a tensor, after checking its shape and its dtype."""
    entry = bundle.entries.get(key) if key is not None else None
    if entry is None:
        raise ValuesError("the checkpoint contains no values for this variable")
    if tensor.shape is not None and -1 not in tensor.shape and entry.shape != tensor.shape:
        raise ValuesError(f"the checkpoint stores this variable with shape {list(entry.shape)}")
    if entry.dtype != tensor.dtype:
        raise ValuesError(
            f"the checkpoint stores this variable as {entry.dtype}, but the graph declares "
            f"{tensor.dtype}"
        )
    return entry
