"""
A model file as a format hands it over: named JSON parts, stored tensors, signatures, and what was
odd about the file.

A document knows nothing of Keras generations; a generation knows nothing of files.

A document has the names, shapes and dtypes of variables, and :class:`Values` their numbers.
No link and no external storage is followed, and no more than a block of a tensor is in memory at
once. :func:`policytool.formats.format_detection.open_values` opens them.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # for the codec
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from policytool.support.errors import PolicytoolError
from policytool.support.steps import spend
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from policytool.support.text.jsontext import Json

    Array = npt.NDArray[Any]
    DType = np.dtype[Any]

_CHARACTERS: Final = 8
"""Characters of an address that count as one step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """The location of a dtype: a JSON document in the file, and a JSON Pointer in it."""

    part: str
    pointer: str

    @classmethod
    def below(cls, root: Address, *steps: str | int) -> Address:
        """
        Return the address at the end of some steps from another address.

        :raises ModelFileError: if the addresses of a file are too long in total, because each of
            many objects repeats a long key above it.
        """
        pointer = root.pointer + jsontext.pointer(*steps)
        spend(1 + len(pointer) // _CHARACTERS, walk="addresses")
        return cls(part=root.part, pointer=pointer)


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """
    A remark about the file for its reader, such as a link that was not followed or a key that
    occurs twice.
    """

    code: str
    """Stable and machine-readable, such as ``external-link``."""

    message: str
    where: str | None = None
    """The layer path, group or member it is about."""


NO_WEIGHTS: Final = "no-weights"
"""The code of an observation about a model whose file lacks the part with the weights."""


class Layout(StrEnum):
    """The convention by which stored tensors are named."""

    LEGACY_H5 = "legacy-h5"
    """
    A group per layer, tensors named ``dense/kernel:0`` in it (Keras 1 to 3, whole-model HDF5).
    """

    OBJECT_PATHS = "object-paths"
    """
    Paths through the object tree, ``layers/dense_1/vars/0`` (Keras 2.12 on, ``.keras`` and
    ``.weights.h5``).
    """

    GRAPH = "graph"
    """Variables are nodes of the object graph (SavedModel)."""

    VARIABLE_NAMES = "variable-names"
    """Names of variables alone, ``dense/kernel``, without the layers above them (TensorFlow.js)."""

    SCOPES = "scopes"
    """Graph-mode variable names, ``dense/kernel`` (TF 1 SavedModels)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """A stored variable, not its values."""

    path: tuple[str, ...]
    """
    Where it is stored, e.g.

    ``("dense_a", "dense_a", "kernel:0")`` or ``("layers", "dense", "vars", "0")``.
    """

    shape: tuple[int, ...] | None
    dtype: str
    """A Keras dtype name; ``opaque16`` for two bytes that no type describes."""

    node: int | None = None
    """
    The variable's node in a SavedModel's object graph; without one (TF 1), its position among the
    graph's nodes.
    """

    key: str | None = None
    """Its key in a checkpoint, which may be another than what it is called."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectNode:
    """
    One object of a SavedModel's object graph that matters here: a Keras object, a variable, or a
    container of them.
    """

    id: int
    identifier: str
    """``_tf_keras_layer`` and the like, ``variable``, or a trackable container's identifier."""

    children: tuple[tuple[str, int], ...]
    """Edges: local name and node id, in the file's order."""

    part: str | None = None
    """The key of the node's metadata in :attr:`Document.parts`."""

    other_part: str | None = None
    """
    The key of the same metadata in the file that older loaders obey, where both hold it (TF 2.5).
    """

    variable: Tensor | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TracedOp:
    """The ops of one kind and one dtype in a saved graph, with their number."""

    op: str
    """The op's name in TensorFlow, such as ``MatMul``."""

    dtype: str
    """The float dtype that it computes in, by Keras' name."""

    count: int
    amp: str | None = None
    """
    The list of TensorFlow's automatic mixed precision that has the op: ``allow``, ``infer``,
    ``deny`` or ``clear``; None where none has.

    Source: tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphOp:
    """Ops of one kind in one scope of a saved graph."""

    scope: tuple[str, ...]
    """
    The op's name without its last part, as it would be if every function were written out where it
    is called.
    """

    op: str
    dtypes: tuple[str, ...]
    """The float dtypes of its inputs and outputs, by Keras' names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """What one entry point of a saved graph does, with calls, loops and branches followed."""

    entry: str
    """The signature, or the root object's attribute that holds the function."""

    signature: bool
    ops: tuple[tuple[GraphOp, int], ...]
    """Each with how often it stands there."""

    reads: Mapping[tuple[str, ...], tuple[int, ...]]
    """Scope to the variables that its ops read, as :attr:`Tensor.node` says them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """One entry point of a SavedModel; argument names to dtype names."""

    name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    compute_dtypes: tuple[str, ...] = ()
    """The float dtypes that its ops compute in, where the graph was read."""

    ops: tuple[TracedOp, ...] = ()
    """
    What it computes with, where the graph was read: ops that mixed precision has an opinion on.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class Writer:
    """Who wrote the file, as far as it says."""

    keras: str | None = None
    tensorflow: str | None = None
    backend: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """What one file (or directory) holds."""

    path: str
    format: str
    """
    The ``document_format`` of a :class:`policytool.formats.base.Format`; ``weights`` for a file
    that holds nothing else.
    """

    parts: Mapping[str, Json] = field(default_factory=dict)
    """JSON documents by name; the model's own config is :attr:`config`."""

    config_part: str | None = None
    """The part that describes the model; None where the file holds no config."""

    config_file: str | None = None
    """
    The file in a model's directory that holds its config, or its graph if it holds no config; None
    for a model that is one file.
    """

    config_pointer: str = ""
    """Where the config stands in its part, as a JSON Pointer; empty where it is the whole part."""

    training_part: str | None = None
    """
    The part with the training configuration (H5: a part of its own; ``.keras``: inside
    ``config.json``).
    """

    training_pointer: str = ""
    """Where the training configuration stands in its part."""

    layout: Layout | None = None
    tensors: tuple[Tensor, ...] | None = None
    """Stored variables; None where the format stores none (architectures)."""

    unlisted: frozenset[tuple[str, ...]] = field(default=frozenset(), compare=False)
    """The paths of stored variables that no list in the file names, and no release reads."""

    listed_layers: tuple[str, ...] = field(default=(), compare=False)
    """The layers that the file lists, in the order in which releases restore them (HDF5)."""

    missing: tuple[str, ...] = field(default=(), compare=False)
    """What the lists of the file name, and what is not stored (HDF5)."""

    state: tuple[Tensor, ...] = ()
    """The optimizer's stored variables, where they stand beside those of the layers (HDF5)."""

    layer_names: Mapping[str, str] = field(default_factory=dict)
    """
    Storage path of a layer to its name, if no config lists the layers and the file records it
    (Keras 3.6 on).
    """

    vocabularies: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """
    Storage path of a lookup layer to the words that an archive holds beside its config, one on a
    line; in a SavedModel the number of its node to those of its table, without special ones.
    """

    adapted: Mapping[Tensor, tuple[float, ...]] = field(default_factory=dict, compare=False)
    """
    The values of the variables that ``adapt`` filled, which other releases have in the config; no
    part of a comparison, which reads all values.
    """

    nodes: Mapping[int, ObjectNode] = field(default_factory=dict)
    signatures: tuple[Signature, ...] = ()
    traces: tuple[Trace, ...] = ()
    """What the graph does (SavedModel); nothing for a file that holds no functions."""

    ops: frozenset[str] = frozenset()
    """
    The kinds of ops in all graphs that the file holds, functions that nobody calls included
    (SavedModel).
    """

    numbered: bool = False
    """Whether every scope of the graph carries the number of a call (what Keras 3 exports)."""

    writer: Writer = Writer()
    observations: tuple[Observation, ...] = ()

    @property
    def config(self) -> Json:
        """What describes the model; None where the file holds no config."""
        return self._at(self.config_part, self.config_pointer)

    @property
    def training(self) -> Json:
        """The training configuration; None where it has no place of its own."""
        return self._at(self.training_part, self.training_pointer)

    def _at(self, part: str | None, pointer: str) -> Json:
        try:
            return jsontext.value(self.parts[part], pointer) if part is not None else None
        except (
            LookupError,
            TypeError,
            ValueError,
        ):  # a plan by another hand can leave nothing there
            return None


BLOCK: Final = 4 * 2**20
"""The most bytes of a tensor that are held at once, but for chunks, which no release writes."""


class ValuesError(PolicytoolError):
    """Values that cannot be read; the message is a reason that follows ``not compared:``."""


class Values(Protocol):
    """The values of one file's variables."""

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """
        Yield a tensor's values in C order, as flat arrays in the machine's byte order.

        bfloat16 comes as ``ml_dtypes`` has it, floats of eight bits as their bits.

        :raises ValuesError: for values that are not in the file, or of a kind that is not read.
        """

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """
        Return one layer's tensors in the layer's own order, as far as the file tells it: as they
        are, in the order of the document, where nothing else is said.
        """
        return tensors


def by_number(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """
    Return tensors by their paths, whose last parts are numbers in Keras 3's files; ``10`` comes
    behind ``9``.
    """
    return tuple(sorted(tensors, key=_numbers))


def _numbers(tensor: Tensor) -> tuple[tuple[str, ...], int]:
    last = tensor.path[-1]
    return tensor.path[:-1], int(last) if last.isdigit() and len(last) < 10 else 0  # noqa: PLR2004  # longer ones are no numbers of Keras
