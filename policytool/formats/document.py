"""
The content of a model file: named JSON parts, stored tensors, signatures, and observations about
the file.

Documents are independent of Keras versions.

A document has the names, shapes and dtypes of variables; :class:`Values` has their numbers and is
opened by :func:`policytool.formats.format_detection.open_values`. Links and external storage are
not followed, and at most one block of a tensor is in memory.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # for the codec
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct

from policytool.releases.dtypes import FLOATS
from policytool.support.errors import PolicytoolError
from policytool.support.steps import spend
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import numpy.typing as npt

    from policytool.support.files.remote_path import AnyPath
    from policytool.support.text.jsontext import Json

    Array = npt.NDArray[Any]
    DType = np.dtype[Any]

_CHARACTERS: Final = 8
"""The number of characters of an address that count as one step."""


class Address(Struct, frozen=True, kw_only=True):
    """The location of a dtype: a JSON document in the file, and a JSON Pointer in it."""

    part: str
    pointer: str

    @classmethod
    def below(cls, root: Address, *steps: str | int) -> Address:
        """
        Return the address that follows from another address by some steps.

        :raises ModelFileError: if the addresses of a file are too long in total, because each of
            many objects repeats a long key above it.
        """
        pointer = root.pointer + jsontext.pointer(*steps)
        spend(1 + len(pointer) // _CHARACTERS, walk="addresses")
        return cls(part=root.part, pointer=pointer)


class Observation(Struct, frozen=True, kw_only=True):
    """
    A remark about the file for its reader, such as a link that was not followed or a key that
    occurs twice.
    """

    code: str
    """A stable, machine-readable code, such as ``external-link``."""

    message: str
    where: str | None = None
    """The layer path, group or member that the observation is about."""


NO_WEIGHTS: Final = "no-weights"
"""The code of an observation about a model whose file lacks the part with the weights."""


LOST_VALUES: Final = ("checkpoint-incomplete", "tfjs-incomplete", "truncated")
"""The codes of observations about a file with values that is missing or too short."""


UNTYPED: Final = "untyped-variables"
"""The code of an observation about variables in an archive that lack their dtype."""

UNKNOWN_DTYPES: Final = "unknown-dtypes"
"""The code of an observation about variables whose dtypes are not read."""


class Layout(StrEnum):
    """The naming convention of stored tensors."""

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
    """Names of variables, ``dense/kernel``, without the layers above them (TensorFlow.js)."""

    SCOPES = "scopes"
    """
    Names of variables below the scopes of layers, ``dense/kernel`` (TF 1 SavedModels and Orbax
    checkpoints).
    """


class Tensor(Struct, frozen=True, kw_only=True):
    """A stored variable, without its values."""

    path: tuple[str, ...]
    """
    The path in the file, e.g.

    ``("dense_a", "dense_a", "kernel:0")`` or ``("layers", "dense", "vars", "0")``.
    """

    shape: tuple[int, ...] | None
    dtype: str
    """
    A Keras dtype name; ``opaque16`` for two bytes without a type, and ``unknown`` if the library
    that reads it is not installed.
    """

    node: int | None = None
    """
    The variable's node in a SavedModel's object graph; in TF 1, which has none, its position among
    the nodes of the graph.
    """

    key: str | None = None
    """The key in a checkpoint, which may differ from the name."""


class ObjectNode(Struct, frozen=True, kw_only=True):
    """
    An object of a SavedModel's object graph: a Keras object, a variable, or a container of them.
    """

    id: int
    identifier: str
    """``variable``, an identifier of Keras such as ``_tf_keras_layer``, or that of a container."""

    children: tuple[tuple[str, int], ...]
    """Edges: local name and node id, in the order of the file."""

    part: str | None = None
    """The key of the node's metadata in :attr:`Document.parts`."""

    other_part: str | None = None
    """
    The key of the same metadata in the file that older releases read, if two files contain it
    (TF 2.5).
    """

    variable: Tensor | None = None


class TracedOp(Struct, frozen=True, kw_only=True):
    """The ops of one kind and one dtype in a saved graph, with their number."""

    op: str
    """The op's name in TensorFlow, such as ``MatMul``."""

    dtype: str
    """The dtype that the ops compute in, by its name in Keras."""

    count: int
    amp: str | None = None
    """
    The list of TensorFlow's automatic mixed precision that contains the op: ``allow``, ``infer``,
    ``deny`` or ``clear``; None if no list contains it.

    Source: tensorflow/core/grappler/optimizers/auto_mixed_precision_lists.h.
    """


class GraphOp(Struct, frozen=True, kw_only=True):
    """Ops of one kind in one scope of a saved graph."""

    scope: tuple[str, ...]
    """
    The op's name without its last part, as if each function were inlined where it is called.
    """

    op: str
    dtypes: tuple[str, ...]
    """
    The float dtypes of the inputs and outputs, and the integers of 8 bits that it multiplies, by
    their names in Keras.
    """


class Trace(Struct, frozen=True, kw_only=True):
    """The ops of one entry point of a saved graph, with calls, loops and branches followed."""

    entry: str
    """The signature, or the root object's attribute that holds the function."""

    signature: bool
    ops: tuple[tuple[GraphOp, int], ...]
    """The ops, each with its number of occurrences."""

    reads: Mapping[tuple[str, ...], tuple[int, ...]]
    """The variables that the ops of each scope read, as in :attr:`Tensor.node`."""


class EndpointArgument(StrEnum):
    """The kinds of arguments of functions in a SavedModel."""

    TENSOR = "tensor"
    LIST = "list"
    DICT = "dict"


class Endpoint(Struct, frozen=True, kw_only=True):
    """A function with one argument, which the root object of a SavedModel has."""

    argument: EndpointArgument
    names: tuple[str, ...] = ()
    """The names of the tensors in a list, in its order, or the keys of a dict."""


class Signature(Struct, frozen=True, kw_only=True):
    """An entry point of a SavedModel; inputs and outputs map argument names to dtype names."""

    name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    input_shapes: Mapping[str, tuple[int | None, ...] | None] = {}
    """
    The shapes of the inputs by name, with None for each size that is not fixed; None if the rank is
    not fixed.
    """

    output_shapes: Mapping[str, tuple[int | None, ...] | None] = {}
    """The shapes of the outputs by name."""

    compute_dtypes: tuple[str, ...] = ()
    """The float dtypes that the ops compute in; empty if the graph was not read."""

    cast_dtypes: tuple[str, ...] = ()
    """The float dtypes to which values are only cast, so that they are rounded."""

    calls_python: bool = False
    """
    Whether it calls Python functions, which exist only in the process that traced them
    (``tf.py_function``).
    """

    ops: tuple[TracedOp, ...] = ()
    """
    The ops that are in a list of automatic mixed precision; empty if the graph was not read.
    """

    endpoint: Endpoint | None = None
    """
    The function of the root object that has the name of the signature; None without such a
    function. ``model.export`` writes the function ``serve``.
    """

    @property
    def runs_as_layer(self) -> bool:
        """
        Whether ``keras.layers.TFSMLayer`` of Keras 3 can call it: the layer passes its only
        argument by position (``TFSMLayer.call`` in keras/src/export/tfsm_layer.py, 3.15), to the
        function of the root object if there is one. The signature itself takes several inputs only
        by name. As a layer, it casts all float inputs to one dtype.
        """
        return (self.endpoint is not None or len(self.inputs) == 1) and len(self.layer_dtypes) <= 1

    @property
    def layer_dtypes(self) -> frozenset[str]:
        """The float dtypes of the inputs, one of which a layer needs as its dtype."""
        return frozenset(self.inputs.values()).intersection(FLOATS)


class Writer(Struct, frozen=True, kw_only=True):
    """The versions of the libraries that wrote the file; None if the file does not record them."""

    keras: str | None = None
    tensorflow: str | None = None
    backend: str | None = None


class SeparateWeights(Struct, frozen=True, kw_only=True):
    """The file with the weights of an architecture, which is another file."""

    path: AnyPath
    document: Document
    """The document of the file with the weights."""

    architecture: str
    """The format of the file with the architecture."""

    originals: Mapping[tuple[str, ...], Tensor]
    """
    The variables in the file, by their paths in the model's document. The paths differ if the file
    names layers differently.
    """

    @property
    def renamed(self) -> Mapping[str, str]:
        """The names of layers in the file, by their other names in the model."""
        return {
            path[0]: tensor.path[0]
            for path, tensor in self.originals.items()
            if path[0] != tensor.path[0]
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """The content of one model file or directory."""

    path: str
    format: str
    """
    The ``document_format`` of a :class:`policytool.formats.base.Format`; ``weights`` for a file
    that contains only weights.
    """

    parts: Mapping[str, Json] = field(default_factory=dict)
    """JSON documents by name; the model's config is :attr:`config`."""

    config_part: str | None = None
    """The part with the model's config; None if the file has no config."""

    config_file: str | None = None
    """
    The file in a model's directory with the config, or with the graph if there is no config; None
    for a model that is one file.
    """

    config_pointer: str = ""
    """The JSON Pointer to the config in its part; empty if the config is the whole part."""

    training_part: str | None = None
    """
    The part with the training configuration (H5: a separate part; ``.keras``: ``config.json``).
    """

    training_pointer: str = ""
    """The JSON Pointer to the training configuration in its part."""

    layout: Layout | None = None
    tensors: tuple[Tensor, ...] | None = None
    """Stored variables; None if the format stores none (architectures)."""

    local_path: str | None = field(default=None, compare=False)
    """
    The path under which a program loads the file, whose suffix Keras uses; None if it is unknown,
    as for a remote file, a private copy, and a planned file.
    """

    weights: SeparateWeights | None = field(default=None, compare=False)
    """The file with the stored variables, if it is not the model's own file."""

    unicode_attributes: frozenset[str] = field(default=frozenset(), compare=False)
    """
    The HDF5 attributes with a config or names as Unicode text of variable length, which h5py 2
    decodes: programs that edit configs write them, and Keras writes bytes.
    """

    unlisted: frozenset[tuple[str, ...]] = field(default=frozenset(), compare=False)
    """The paths of stored variables that are in no list of the file, and that no release reads."""

    listed_layers: tuple[str, ...] = field(default=(), compare=False)
    """The layers that the file lists, in the order in which releases restore them (HDF5)."""

    missing: tuple[str, ...] = field(default=(), compare=False)
    """The names that are in the lists of the file, but are not stored (HDF5)."""

    restored: Mapping[int, Tensor | None] = field(default_factory=dict, compare=False)
    """
    The stored values of the objects in the graph, by node; None if the checkpoint lists values for
    the object but does not contain them (SavedModel). Empty if the checkpoint cannot be read.
    """

    state: tuple[Tensor, ...] = ()
    """The optimizer's variables, if they are stored separately from those of layers (HDF5)."""

    missing_state: tuple[str, ...] = field(default=(), compare=False)
    """The listed names of the optimizer's variables that are not stored (HDF5)."""

    layer_names: Mapping[str, str] = field(default_factory=dict)
    """
    The names of layers by storage path, if no config lists the layers and the file records the
    names (Keras 3.6 on).
    """

    vocabularies: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    """
    The words of a lookup layer, one per line: from an archive, by the layer's storage path; from
    its table in a SavedModel, by the number of its node and without special words.
    """

    adapted: Mapping[Tensor, tuple[float, ...]] = field(default_factory=dict, compare=False)
    """
    The values of the variables that ``adapt`` computed, which other releases store in the config.
    Comparisons ignore them, because they read all values.
    """

    nodes: Mapping[int, ObjectNode] = field(default_factory=dict)
    signatures: tuple[Signature, ...] = ()
    traces: tuple[Trace, ...] = ()
    """The traces of the graph (SavedModel); empty for a file without functions."""

    ops: frozenset[str] = frozenset()
    """
    The kinds of ops in all graphs of the file, including functions that are never called
    (SavedModel).
    """

    numbered: bool = False
    """Whether all scopes of the graph contain the number of a call (as Keras 3 exports them)."""

    writer: Writer = field(default_factory=Writer)
    observations: tuple[Observation, ...] = ()

    @property
    def config(self) -> Json:
        """The model's config; None if the file has no config."""
        return self._at(self.config_part, self.config_pointer)

    @property
    def training(self) -> Json:
        """The training configuration; None if no part contains it."""
        return self._at(self.training_part, self.training_pointer)

    def _at(self, part: str | None, pointer: str) -> Json:
        """Return the value at a pointer; None if there is none."""
        try:
            return jsontext.value(self.parts[part], pointer) if part is not None else None
        except (
            LookupError,
            TypeError,
            ValueError,
        ):  # a plan edited by hand can remove the value
            return None


BLOCK: Final = 4 * 2**20
"""
The maximum number of bytes of a tensor in memory, except for larger chunks, which no release
writes.
"""


class ValuesError(PolicytoolError):
    """Values that cannot be read; the message is a reason that follows ``not compared:``."""


class DamagedValuesError(ValuesError):
    """Values that no release restores, because their checksum differs or the file is truncated."""


class Values(Protocol):
    """The values of the variables in one file."""

    def blocks(self, tensor: Tensor) -> Iterator[Array]:
        """
        Yield a tensor's values in C order, as flat arrays in the machine's byte order.

        bfloat16 arrays have the dtype of ``ml_dtypes``; 8-bit floats are yielded as their bits.

        :raises ValuesError: if the file lacks the values, or if their dtype is not supported.
        """

    def in_order(self, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """
        Return a layer's tensors in the order in which the layer created them, if the file stores
        it; otherwise in the order of the document.
        """
        return tensors


def by_number(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """
    Return tensors sorted by path. The last part of a path is a number in the files of Keras 3, so
    ``10`` follows ``9``.
    """
    return tuple(sorted(tensors, key=_numbers))


def _numbers(tensor: Tensor) -> tuple[tuple[str, ...], int]:
    """Return the sort key of a tensor: its path, with the last part as a number."""
    last = tensor.path[-1]
    return tensor.path[:-1], int(last) if last.isdigit() and len(last) < 10 else 0  # noqa: PLR2004  # longer ones are no numbers of Keras
