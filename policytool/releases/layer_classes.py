"""
Facts of layer classes and of the classes of Keras 3's operations, such as what a class does with
the values and the masks of its inputs.

``data/layer_classes.json`` and ``data/operation_classes.json`` have one entry for each class that a
config can name; the schemas in ``data/schemas/`` describe each property. What the releases' own
layers answer about arguments, variables, masks, dtypes and results is in the other data files.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # for msgspec.convert
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct, field

from policytool.releases import data, keras_objects

if TYPE_CHECKING:
    from policytool.support.text.jsontext import Json

_OPERATIONS: Final = ("keras.src.ops.", "keras.ops.")
_CELL: Final = "Cell"
Wrapping = Literal["steps", "directions", "kernel", "cells"]
"""
How a wrapper uses its layer: it calls it on each step of a sequence, runs it in both directions, or
normalizes its kernel, which is a variable of the wrapper too.
"""

WrappedOp = Literal["function", "class_method", "attribute", "node_def"]
"""How the config of an op layer names its op."""

Outcome = Literal["kept", "fails"]
"""Whether Keras 3 builds a layer, whose output then is of the same form, or fails."""

ListOutcome = Literal["kept", "built", "ranked", "shrunk", "late", "fails"]
"""What Keras 3 does with a layer behind a list of one tensor; the schema describes the values."""

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    return _NOTHING


class Category(StrEnum):
    """The kind of a layer class."""

    ACTIVATION = "activation"
    ATTENTION = "attention"
    AUGMENTATION = "augmentation"
    """Changes images only in training."""

    BASE = "base"
    """A base class of other classes; no layer of an intact file has it."""

    CELL = "cell"
    CONVOLUTION = "convolution"
    CORE = "core"
    ENCODER = "encoder"
    """Converts numbers and strings to ids or vectors of ids, without a vocabulary."""

    FOREIGN = "foreign"
    """Runs foreign code or a foreign graph."""

    INPUT = "input"
    LOOKUP = "lookup"
    """Converts strings and numbers to ids by a vocabulary."""

    MERGING = "merging"
    MODEL = "model"
    NORMALIZATION = "normalization"
    OP_LAYER = "op_layer"
    """
    Keras 2's own layer around a single op. It computes in the dtypes of its inputs, whatever its
    policy (tf_keras 2.21, src/layers/core/tf_op_layer.py).
    """

    POOLING = "pooling"
    PREPROCESSING = "preprocessing"
    RECURRENT = "recurrent"
    REGULARIZATION = "regularization"
    RESHAPING = "reshaping"
    UNKNOWN = "unknown"
    """The class has no entry."""

    WRAPPER = "wrapper"


class Values(StrEnum):
    """The values of a layer's outputs outside of training."""

    UNCHANGED = "unchanged"
    """The output is the input tensor itself."""

    MOVED = "moved"
    """Values of the inputs: moved, repeated, joined, padded or dropped."""

    AS_EXACT = "as_exact"
    """
    As exact as the values of the inputs: each is one of these, chosen, scaled or interpolated, or
    what an activation makes of it. Averages and sums are not: in those the rounding of many values
    cancels out.
    """


class ImplicitSublayer(Struct, frozen=True, kw_only=True):
    """A layer that another layer creates, and that is not in its config."""

    class_name: str
    name: str


class Risk(Struct, frozen=True, kw_only=True):
    """The reason why a layer computes wrong results under some 16-bit policies, as measured."""

    families: tuple[str, ...]
    policies: tuple[str, ...]
    reason: str
    source: str
    arguments: Mapping[str, tuple[object, ...]] = field(default_factory=_nothing)
    """The values of arguments for which the results are wrong; if empty, they always are."""

    depends_on_values: bool = False
    """Whether it depends on sizes or values that a config does not contain."""

    def concerns(self, family: str, policy: str, config: Mapping[str, object]) -> bool:
        """Return whether the risk applies to a layer with a config in a library, under a policy."""
        return (
            family in self.families
            and policy in self.policies
            and all(config.get(key) in values for key, values in self.arguments.items())
        )


class LayerFacts(Struct, frozen=True, kw_only=True):
    """The facts of a class; the schema of the data describes the fields."""

    category: Category = Category.UNKNOWN
    activation: str | None = None
    averages_over: int | None = None
    built_as_floats: bool = False
    boundaries: str | None = None
    call: tuple[str, ...] = ("inputs", "training")
    call_arguments: Mapping[str, str] = field(default_factory=_nothing)
    cast_arguments: Mapping[str, tuple[str, ...]] = field(default_factory=_nothing)
    counts_in: Literal["compute_dtype", "variable_dtype"] = "compute_dtype"
    cuts: bool = False
    extra_axis: Outcome | None = None
    fixes_size: bool = False
    holds: Mapping[str, str] = field(default_factory=_nothing)
    id_count: str | None = None
    inner_lookup: str | None = None
    interpolates: bool = False
    keeps_integers: bool = False
    later_name: str | None = None
    list_of_one: ListOutcome | None = None
    makes_mask: str | None = None
    masks_scores: bool = False
    moves: str | None = None
    network: str | None = None
    opens: Mapping[str, str] = field(default_factory=_nothing)
    output_shape: tuple[str, ...] = ()
    predicts_as: str | None = None
    predicts_with: Mapping[str, bool | float | str] = field(default_factory=_nothing)
    public_name: str | None = None
    quantizable: bool = False
    rank: int | Literal["input"] | None = None
    renamed_arguments: Mapping[str, str] = field(default_factory=_nothing)
    renamed_variables: Mapping[str, str] = field(default_factory=_nothing)
    risks: tuple[Risk, ...] = ()
    scaling: tuple[str, ...] = ()
    splits_texts: bool = False
    state_in_config: bool = False
    statistics: tuple[str, ...] = ()
    stepwise: bool = False
    sublayers: Mapping[str, ImplicitSublayer] = field(default_factory=_nothing)
    sublayers_to_tf25: Mapping[str, ImplicitSublayer] = field(default_factory=_nothing)
    takes_ids: bool = False
    untrained: bool = False
    unused_arguments: tuple[str, ...] = ()
    uses_epsilon: Mapping[str, str] = field(default_factory=_nothing)
    values: Values | None = None
    variable_shapes: Mapping[str, tuple[str, ...]] = field(default_factory=_nothing)
    vocabulary_dtype: str | None = None
    without_autocast: tuple[str, ...] = ()
    wrapped_op: WrappedOp | None = None
    wraps: Wrapping | None = None

    @property
    def is_model(self) -> bool:
        """Whether the config lists layers."""
        return self.category is Category.MODEL

    @property
    def is_op_layer(self) -> bool:
        """Whether it is Keras 2's own layer around a single op."""
        return self.category is Category.OP_LAYER

    @property
    def is_opaque(self) -> bool:
        """
        Whether code that is not Keras', or an op, determines the dtypes of its layers, whatever
        their policies are.
        """
        return self.category in {Category.FOREIGN, Category.OP_LAYER}

    @property
    def is_lookup(self) -> bool:
        """Whether it converts strings and numbers to ids by a vocabulary."""
        return self.category is Category.LOOKUP

    @property
    def keeps_moving_statistics(self) -> bool:
        """Whether training updates statistics of its inputs, in addition to a gamma and a beta."""
        return bool(self.statistics) and self.category is Category.NORMALIZATION

    @property
    def adapts_statistics(self) -> bool:
        """Whether ``adapt`` sets the statistics of its inputs."""
        return bool(self.statistics) and self.category is Category.PREPROCESSING

    @property
    def makes_ids(self) -> bool:
        """
        Whether it creates ids, or vectors of ids, by table lookups and counts, which have no 16-bit
        kernels.
        """
        return self.category in {Category.LOOKUP, Category.ENCODER}

    @property
    def shapes_values(self) -> bool:
        """Whether its results are as exact as its inputs."""
        return self.values is not None

    @property
    def makes_projections(self) -> bool:
        """Whether it creates the layers that project its queries, keys, values and outputs."""
        return bool(self.sublayers) and self.category is Category.ATTENTION

    @property
    def takes_mask(self) -> bool:
        """Whether its call has an argument ``mask``."""
        return "mask" in self.call

    @property
    def takes_states(self) -> bool:
        """Whether it is called on a sequence with states."""
        return "initial_state" in self.call

    def masks_values(self, config: Mapping[str, object]) -> bool:
        """Return whether a layer with a config computes a mask from its input values."""
        return self.makes_mask == "always" or (
            self.makes_mask is not None and config.get(self.makes_mask) is True
        )


class OperationFacts(Struct, frozen=True, kw_only=True):
    """The facts of a class of operations; the schema of the data describes the fields."""

    module: str | None = None
    axis_bound: int | None = None
    half_kernels: bool = True
    joins: Literal["axis", "new_axis"] | None = None
    kernel_channels: int | None = None
    promotes: bool = True
    read_as_layer: bool = False


UNKNOWN: Final = LayerFacts()


def layer_facts(class_name: str | None) -> LayerFacts:
    """Return the facts of a class; :data:`UNKNOWN` for a class without an entry."""
    if class_name is None or class_name not in _entries():
        return UNKNOWN
    return _known_facts(class_name)


def layer_of_cell(class_name: str) -> str | None:
    """Return the class of the layer that creates a cell: ``LSTM`` for ``LSTMCell``."""
    layer = class_name.removesuffix(_CELL)
    is_maker = layer != class_name and layer_facts(layer).category is Category.RECURRENT
    return layer if is_maker else None


def operation_facts(class_name: str) -> OperationFacts:
    """Return the facts of a class of operations; the defaults for a class without an entry."""
    return OperationFacts(**data.read("operation_classes")["operations"].get(class_name, {}))


def classes_of(category: Category) -> frozenset[str]:
    """Return the classes of a category."""
    return frozenset(name for name, entry in _entries().items() if entry["category"] == category)


def public_class_name(class_name: str) -> str:
    """
    Return the public name of a class, which is the name itself unless the class is registered under
    another.
    """
    return layer_facts(class_name).public_name or class_name


def registered_class_name(class_name: str) -> str:
    """Return the name under which Keras 3 registers a class, from the public name."""
    return _registered_names().get(class_name, class_name)


@cache
def known_classes() -> frozenset[str]:
    """Return all classes that have an entry."""
    return frozenset(_entries())


@cache
def builtin_classes() -> frozenset[str]:
    """
    Return the public layer and model classes of every release. ``fixtures/generate.py`` reads them
    from the releases.
    """
    return frozenset(data.read("layer_classes")["classes"])


@cache
def operation_classes() -> frozenset[str]:
    """
    Return the classes of Keras 3's operations. Some share their name with a layer (Add, Softmax).
    """
    return frozenset(data.read("operation_classes")["operations"])


def is_operation(entry: dict[str, Json]) -> bool:
    """
    Return whether an entry of a functional model's graph is a Keras 3 operation and not a layer.

    The module of the entry decides. HDF5 files have no modules; in these, the class decides
    together with the call arguments (``args``), which only Keras 3 writes. A layer whose class
    shares its name with an operation always has ``trainable`` in its config.
    """
    module, config = entry.get("module"), entry.get("config")
    if isinstance(module, str):
        return module.startswith(_OPERATIONS)
    if (
        not isinstance(config, dict)
        or "trainable" in config
        or keras_objects.class_of(entry) not in operation_classes()
    ):
        return False
    return any(
        isinstance(node, dict) and "args" in node for node in keras_objects.stored_calls(entry)
    )


@cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    table = data.read("layer_classes")
    return {**table["classes"], **table["unlisted"]}


@cache
def _registered_names() -> Mapping[str, str]:
    return {
        entry["public_name"]: name for name, entry in _entries().items() if "public_name" in entry
    }


@cache
def _known_facts(class_name: str) -> LayerFacts:
    """
    Return the facts of a class in the data. Only such classes are cached, because files name the
    classes.
    """
    entry, rows = _entries()[class_name], data.read("layer_classes")["risks"]
    risks = [rows[name] for name in entry.get("risks", ())]
    return msgspec.convert({**entry, "risks": risks}, LayerFacts)
