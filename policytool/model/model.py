"""
The description of a saved model, independent of its file format and generation.

Reports render these values, ``policytool.inspect`` returns them, and the JSON report contains their
fields.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence  # for the codec
from enum import StrEnum
from typing import overload

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats.document import Address, Observation, Signature, TracedOp, Writer
from policytool.releases import dtypes
from policytool.releases.policy import Dynamic, Fixed, Quantization  # noqa: TC001  # for the codec
from policytool.releases.releases import target_and_containers

__all__ = [
    "Cause",
    "LaterOps",
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
    """The source of the dtypes of a layer."""

    DECLARED = "declared"
    """The file stores them."""

    DEFAULT = "default"
    """The file stores none; the default of the generation that wrote it applies."""

    GLOBAL = "global"
    """The global policy applies when the file is loaded."""

    UNKNOWN = "unknown"
    """The file does not determine them."""


class Variable(Struct, frozen=True, kw_only=True):
    """A stored variable of a layer."""

    name: str
    shape: tuple[int, ...] | None
    """None if the shape is unknown when the model is built."""

    dtype: str
    """The stored dtype."""

    @property
    def parameters(self) -> int:
        """The number of values in the variable."""
        return 0 if self.shape is None or -1 in self.shape else math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size of the stored values in bytes; 0 for strings."""
        return self.parameters * dtypes.itemsize(self.dtype)


class Layer(Struct, frozen=True, kw_only=True):
    """A layer at its first place in the model; a shared layer is listed once."""

    path: str
    """Names from the root down, joined by ``/``; a ``/`` inside a name is written ``~1``."""

    also_at: tuple[str, ...] = ()
    """The other places of a shared layer."""

    name: str
    class_name: str | None
    """None if the file has only the variables of the layer."""

    registered_name: str | None = None
    policy: str | None = None
    effective_policy: str | None = None
    """
    The policy that KerasHub gives to the layer of a preset by default: a name, ``(global)`` for the
    global policy, or both, joined by ``or``, if the code of the layer decides. None for files that
    are not presets.
    """

    compute_dtype: str | None = None
    variable_dtype: str | None = None
    source: Source
    loss_scale: Dynamic | Fixed | None = None
    loss_scale_default: bool = False
    """Whether the file stores no loss scale, so that the default of its generation applies."""

    quantization: Quantization | None = None
    deprecated: bool = False
    """Whether the policy has a format that current releases no longer write."""

    autocast: bool | None = None
    """None if the file format does not store it."""

    opaque: bool = False
    """
    Whether the declared policy does not prove the compute dtype, because of the class: custom code,
    Lambda, graph ops, or layers of other frameworks.
    """

    traced_dtypes: tuple[str, ...] = ()
    """The float dtypes of the ops in the layer's scope, if the file has a graph."""

    traced_ops: tuple[TracedOp, ...] = ()
    """The ops in the layer's scope that are in a list of automatic mixed precision."""

    variables: tuple[Variable, ...] = ()
    created_parameters: int | None = None
    """
    The number of parameters that the layer itself creates, according to its config. None if it is
    unknown, and for a layer with stored variables.
    """

    inputs: tuple[str, ...] = ()
    """The paths of the layers whose outputs it uses; only some reports need them."""

    output_shape: tuple[int | None, ...] | None = None
    """
    The shape of the output, or of the first of several outputs; None if it is unknown.
    """

    address: Address | None = None

    @property
    def parameters(self) -> int | None:
        """
        The number of parameters of the layer itself: those stored, or otherwise those that it
        creates. None if it is unknown.
        """
        if not self.variables:
            return self.created_parameters
        is_known = all(
            variable.shape is not None and -1 not in variable.shape for variable in self.variables
        )
        return sum(variable.parameters for variable in self.variables) if is_known else None


class Optimizer(Struct, frozen=True, kw_only=True):
    """The stored optimizer of a file."""

    class_name: str
    """The class of the optimizer, without a loss-scaling wrapper."""

    loss_scale: Dynamic | Fixed | None = None


class Summary(Struct, frozen=True, kw_only=True):
    """Totals over the layers."""

    layers: int
    parameters: int
    bytes: int
    policies: Mapping[str, int]
    """The number of layers with each policy; layers without a policy are not counted."""


class Obstacle(StrEnum):
    """The part of a file that a loader may not support."""

    NAME = "name"
    """The name of the file, by which Keras selects the reader."""

    CONTAINER = "container"
    """The file format, or the archive that contains the file."""

    MODEL = "model"
    """The config of the whole model: it is subclassed or nested, or has no input."""

    POLICY = "policy"
    """The format of its policies."""

    CLASS = "class"
    """A class that the release lacks, or cannot find by the name and module in the file."""

    KEY = "key"
    """An argument of a class that the release does not support, or that is missing."""

    CONFIG = "config"
    """A key of the config that no release can do without is missing."""

    GRAPH = "graph"
    """An op in the graph."""

    DTYPE = "dtype"
    """A layer or an initialiser without a kernel for its dtype."""

    STORAGE = "storage"
    """The storage format of its variables."""

    VARIABLES = "variables"
    """Stored variables that are missing, or that do not match those of its layers."""

    RESULTS = "results"
    """What the model computes: the release loads it."""


class Cause(Struct, frozen=True, kw_only=True):
    """A reason that is sufficient for a release to fail."""

    kind: Obstacle
    reason: str
    """A sentence part that completes "refused by ...: "."""

    layers: tuple[str, ...] = ()
    """
    The paths of the layers that cause it. Empty if the whole file causes it, or if the layers are
    unknown.
    """

    class_name: str | None = None
    """The class that causes it: that of a layer, or of an object in the config of a layer."""

    keys: tuple[str, ...] = ()
    """The config keys that cause it."""

    remedy: str = "save the model again, or copy the file again"
    """
    What to do about a file that no release restores, or that computes something else; for the name
    of a file, the command that renames it.
    """


class Outcome(StrEnum):
    """The result of loading a file, or a part of it, with a release."""

    LOADS = "loads"
    INCOMPATIBLE = "incompatible"
    UNKNOWN = "unknown"


class Effect(StrEnum):
    """The effect of a command on the results of a model."""

    UNCHANGED = "unchanged"
    """Predictions are unchanged."""

    RESCALED = "rescaled"
    """Predictions are unchanged, but weights are rescaled."""

    CUSTOM_CODE = "custom-code"
    """Predictions depend on the code of custom classes, which the file does not contain."""

    CHANGED = "changed"
    """Predictions or further training change."""


class PartVerdict(Struct, frozen=True, kw_only=True):
    """The verdict on a part of a file that a release reads in addition to the model."""

    reason: str | None = None
    """The reason why the release fails on the part; None if no reason is known."""

    doubt: str | None = None
    """The reason why the outcome is unknown; None if it is known."""

    @property
    def outcome(self) -> Outcome:
        """The outcome for the part; a reason to fail takes precedence over doubts."""
        if self.reason is not None:
            return Outcome.INCOMPATIBLE
        return Outcome.LOADS if self.doubt is None else Outcome.UNKNOWN

    @property
    def explanation(self) -> str | None:
        """The reason of the outcome; None for a part that the release reads."""
        return self.doubt if self.reason is None else self.reason


class Verdict(Struct, frozen=True, kw_only=True):
    """
    The verdict of a release on a file; all reports create their text from this value.

    The outcome is that of ``compile=False``. Each part that is read in addition to the model has a
    separate outcome.
    """

    loader: str
    """A release, such as ``tf2.4`` or ``keras3.6``."""

    reason: str | None
    """The reason why the release fails to load the file; None if no reason is known."""

    causes: tuple[Cause, ...] = ()
    """All known causes of the failure; the first is the reason."""

    doubts: tuple[Cause, ...] = ()
    """
    Possible causes of a failure that the file neither proves nor excludes, and causes of other
    results.
    """

    training: PartVerdict | None = None
    """
    The verdict on the training configuration, with ``compile=True``. None if there is none, or if
    the release fails to load the file for other causes than policies, which fixes rewrite in place.
    """

    @property
    def outcome(self) -> Outcome:
        """The outcome for the file; a reason to fail takes precedence over doubts."""
        if self.reason is not None:
            return Outcome.INCOMPATIBLE
        return Outcome.LOADS if self.not_judged is None else Outcome.UNKNOWN

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

    def with_further_cause(self, cause: Cause) -> Verdict:
        """Return this verdict with a cause of a failure after the known ones."""
        return replace(self, reason=self.reason or cause.reason, causes=(*self.causes, cause))

    @property
    def changed_results(self) -> tuple[Cause, ...]:
        """Why the predictions of the release differ from those of the release that wrote it."""
        return tuple(doubt for doubt in self.doubts if doubt.kind is Obstacle.RESULTS)

    @property
    def not_judged(self) -> str | None:
        """The reason why the outcome is unknown; None if it is known."""
        doubts = (doubt.reason for doubt in self.doubts if doubt.kind is not Obstacle.RESULTS)
        return next(doubts, None) if self.reason is None else None


class Verdicts(Sequence[Verdict]):
    """
    The verdicts of releases on a file, in the order of the releases. Each is computed when it is
    used, because many callers need that of one release. Reports and messages between processes have
    tuples of verdicts, which are computed within the budget of the file.
    """

    def __init__(self, loaders: Iterable[str], judge: Callable[[str], Verdict]) -> None:
        """Compute no verdict yet; ``judge`` returns that of a release, and caches it."""
        self._loaders = tuple(loaders)
        self._judge = judge

    def of(self, loader: str) -> Verdict | None:
        """Return the verdict of a release; None if there is none."""
        return self._judge(loader) if loader in self._loaders else None

    def map(self, change: Callable[[Verdict], Verdict]) -> Verdicts:
        """Return the changed verdicts, each of which is computed when it is used."""
        return Verdicts(self._loaders, lambda loader: change(self._judge(loader)))

    @overload
    def __getitem__(self, index: int) -> Verdict: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Verdict, ...]: ...
    def __getitem__(self, index: int | slice) -> Verdict | tuple[Verdict, ...]:
        """Return the verdict of the release at an index."""
        if isinstance(index, slice):
            return tuple(map(self._judge, self._loaders[index]))
        return self._judge(self._loaders[index])

    def __len__(self) -> int:
        """Return the number of releases."""
        return len(self._loaders)


def verdict_of(verdicts: Sequence[Verdict], loader: str) -> Verdict | None:
    """Return the verdict of a release; None if there is none."""
    if isinstance(verdicts, Verdicts):
        return verdicts.of(loader)
    return next((verdict for verdict in verdicts if verdict.loader == loader), None)


def verdict_for(verdicts: Sequence[Verdict], release: str) -> Verdict | None:
    """
    Return the verdict for any known release: a release that runs files that are written for an
    older one has the verdict of the older one.
    """
    return verdict_of(verdicts, target_and_containers(release)[0])


class LaterOps(Struct, frozen=True, kw_only=True):
    """The ops of a SavedModel because of which older releases do not run its signatures."""

    newest_without: str
    """The newest tested release that lacks them."""

    ops: tuple[str, ...]


class Model(Struct, frozen=True, kw_only=True):
    """A saved model."""

    path: str
    format: str
    generation: str | None
    """The range of releases that can have written the file: ``tf2.3-2.4``, ``keras3.4+``, None."""

    writer: Writer
    layers: tuple[Layer, ...]
    optimizer: Optimizer | None = None
    signatures: tuple[Signature, ...] = ()
    later_ops: LaterOps | None = None
    """None if all tested releases have the ops of the signatures, and for other formats."""

    observations: tuple[Observation, ...] = ()
    loaders: tuple[Verdict, ...] = ()
    """The verdict of each release on the file."""

    executed_code: tuple[str, ...] = ()
    """
    A clause for each part of the file with code that runs when the model is loaded, with a
    reference to a harmful function, or with an op that accesses files, the network or Python.
    """

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
