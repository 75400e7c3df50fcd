"""
A saved model as policytool sees it, whatever file and generation it came from.

These are the values that the reports render and that ``policytool.inspect`` returns; the JSON
report contains their fields.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping  # noqa: TC003  # for the codec
from dataclasses import dataclass
from enum import StrEnum

from policytool.formats.document import Address, Observation, Signature, TracedOp, Writer
from policytool.releases import dtypes
from policytool.releases.policy import Dynamic, Fixed, Quantization  # noqa: TC001  # for the codec

__all__ = [
    "Cause",
    "Layer",
    "Model",
    "Observation",
    "Obstacle",
    "Optimizer",
    "Outcome",
    "PartVerdict",
    "Signature",
    "Source",
    "Summary",
    "TracedOp",
    "Variable",
    "Verdict",
    "Writer",
]


class Source(StrEnum):
    """Why a layer's dtypes are what the report says."""

    DECLARED = "declared"
    """The file says so."""

    DEFAULT = "default"
    """The file leaves it unsaid, and the rule of the generation that wrote it fills it."""

    GLOBAL = "global"
    """The global policy applies when the file is loaded."""

    UNKNOWN = "unknown"
    """The file cannot tell."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """A stored variable of a layer."""

    name: str
    shape: tuple[int, ...] | None
    """None where the shape is not known when the model is built."""

    dtype: str
    """The stored dtype."""

    @property
    def parameters(self) -> int:
        """How many numbers it holds."""
        return 0 if self.shape is None or -1 in self.shape else math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """What its numbers take when stored; 0 for strings."""
        return self.parameters * dtypes.itemsize(self.dtype)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer, once, at its first place in the model."""

    path: str
    """Names from the root down, joined by ``/``; a ``/`` inside a name is written ``~1``."""

    also_at: tuple[str, ...] = ()
    """The other places of a shared layer."""

    name: str
    class_name: str | None
    """None where the file has only the layer's variables."""

    registered_name: str | None = None
    policy: str | None = None
    compute_dtype: str | None = None
    variable_dtype: str | None = None
    source: Source
    loss_scale: Dynamic | Fixed | None = None
    loss_scale_default: bool = False
    """Whether the file left the loss scale to its generation's rule."""

    quantization: Quantization | None = None
    deprecated: bool = False
    """Whether the policy is spelled in a way that current releases no longer write."""

    autocast: bool | None = None
    """None where the format does not hold it."""

    opaque: bool = False
    """
    Whether the class is one whose computation the declared policy does not prove: custom code,
    Lambda, graph ops, other frameworks.
    """

    traced_dtypes: tuple[str, ...] = ()
    """The float dtypes of the ops at the layer's scope, where the file has a graph."""

    traced_ops: tuple[TracedOp, ...] = ()
    """Of those ops, the ones that mixed precision has an opinion on."""

    variables: tuple[Variable, ...] = ()
    created_parameters: int | None = None
    """
    How many parameters the layer itself creates, by its config; None where that is not known, and
    for a layer with stored variables.
    """

    output_shape: tuple[int | None, ...] | None = None
    """
    The shape of the output, of the first output if there are several; None where it is not known.
    """

    address: Address | None = None

    @property
    def parameters(self) -> int | None:
        """
        How many parameters the layer itself has: stored ones, or else those that it creates; None
        where that is not known.
        """
        if not self.variables:
            return self.created_parameters
        is_known = all(
            variable.shape is not None and -1 not in variable.shape for variable in self.variables
        )
        return sum(variable.parameters for variable in self.variables) if is_known else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimizer:
    """The optimizer that the file was saved with."""

    class_name: str
    """The optimizer's own class, without the loss-scaling wrapper around it."""

    loss_scale: Dynamic | Fixed | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Totals over the layers."""

    layers: int
    parameters: int
    bytes: int
    policies: Mapping[str, int]
    """How many layers have each policy; layers without one are not counted."""


class Obstacle(StrEnum):
    """The part of a file that a loader may not support."""

    CONTAINER = "container"
    """The format, or what it is wrapped in."""

    MODEL = "model"
    """How the model as a whole is described: subclassed, nested, without an input."""

    POLICY = "policy"
    """How its policies are spelled."""

    CLASS = "class"
    """A class that the loader lacks, or cannot find by what the file says of it."""

    KEY = "key"
    """An argument of a class that the loader does not take, or misses."""

    GRAPH = "graph"
    """An op of its graph."""

    DTYPE = "dtype"
    """A layer or an initialiser without a kernel for its dtype."""

    STORAGE = "storage"
    """How its variables are stored."""

    VARIABLES = "variables"
    """Stored variables that are missing, or that are not those of its layers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """One reason that is enough for a loader to fail."""

    kind: Obstacle
    reason: str
    """A sentence part that completes "refused by ...: "."""

    layers: tuple[str, ...] = ()
    """
    The paths of the layers that do it; none where it is the file as a whole, or where the file does
    not tell.
    """

    class_name: str | None = None
    """The class that it is about: a layer's, or that of something in its config."""

    keys: tuple[str, ...] = ()
    """The config keys that it is about."""


class Outcome(StrEnum):
    """What a release does with a file, or with a part of it."""

    LOADS = "loads"
    INCOMPATIBLE = "incompatible"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartVerdict:
    """What a release does with a part of a file that it reads beside the model."""

    reason: str | None = None
    """Why it fails on the part; None where no reason is known."""

    doubt: str | None = None
    """What leaves open whether it reads the part; None where that is known."""

    @property
    def outcome(self) -> Outcome:
        """What the release does with the part; a reason to fail outweighs every doubt."""
        if self.reason is not None:
            return Outcome.INCOMPATIBLE
        return Outcome.LOADS if self.doubt is None else Outcome.UNKNOWN

    @property
    def explanation(self) -> str | None:
        """The reason of the outcome; None for a part that the release reads."""
        return self.doubt if self.reason is None else self.reason


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """
    What a release does with a file: the one value from which all reports take their words.

    The outcome is that of ``compile=False``; each part that is read beside the model has an outcome
    of its own.
    """

    loader: str
    """A release, such as ``tf2.4`` or ``keras3.6``."""

    reason: str | None
    """Why it refuses; None where nothing known stands in the way."""

    causes: tuple[Cause, ...] = ()
    """Everything that stands in its way, the first of which is the reason."""

    doubts: tuple[Cause, ...] = ()
    """What may stand in its way, and cannot be known from the file."""

    training: PartVerdict | None = None
    """
    What it makes of the training configuration, with ``compile=True``; None where there is none, or
    where it refuses the file for anything but its policies, which fixes rewrite in place.
    """

    @property
    def outcome(self) -> Outcome:
        """What the release does with the file; a reason to fail outweighs every doubt."""
        if self.reason is not None:
            return Outcome.INCOMPATIBLE
        return Outcome.UNKNOWN if self.doubts else Outcome.LOADS

    @property
    def explanation(self) -> str | None:
        """The reason of the outcome; None for a file that the release loads."""
        return self.reason if self.reason is not None else self.not_judged

    @property
    def loads(self) -> bool:
        """
        Whether the release certainly loads the file: nothing is incompatible, and nothing is
        unknown.
        """
        return self.outcome is Outcome.LOADS

    @property
    def not_judged(self) -> str | None:
        """What leaves open whether it takes the file; None where that is known."""
        return self.doubts[0].reason if self.outcome is Outcome.UNKNOWN else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """One saved model."""

    path: str
    format: str
    generation: str | None
    """The narrowest set of releases that the file proves: ``tf2.3-2.4``, ``keras3.4+``, or None."""

    writer: Writer
    layers: tuple[Layer, ...]
    optimizer: Optimizer | None = None
    signatures: tuple[Signature, ...] = ()
    observations: tuple[Observation, ...] = ()
    loaders: tuple[Verdict, ...] = ()
    """What each loader makes of the file, as far as its policies and its container decide it."""

    executed_code: tuple[str, ...] = ()
    """A clause for each layer with code in the file that runs when the model is loaded."""

    @property
    def summary(self) -> Summary:
        """Totals; each stored variable counts once."""
        variables = [variable for layer in self.layers for variable in layer.variables]
        return Summary(
            layers=len(self.layers),
            parameters=sum(variable.parameters for variable in variables),
            bytes=sum(variable.bytes for variable in variables),
            policies=Counter(layer.policy for layer in self.layers if layer.policy),
        )
