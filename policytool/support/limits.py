"""
Bounds for files from strangers, each with a name and the reason for its size.

They are far above what any published model needs and far below what would hurt the machine that
reads it. Who runs the tool may set another bound, by ``--limit NAME=VALUE`` or an argument of the
Python API: it holds within :func:`given`, and whoever checks a bound asks it for what counts now.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.support.errors import UsageError
from policytool.support.suggestion import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BYTES: Final = "bytes"

_FEW: Final = 10
"""Of a unit of bytes: fewer are told in the next smaller one."""

_GIVEN: ContextVar[Mapping[str, int]] = ContextVar("policytool.support.limits")
"""What whoever runs the tool asked for, by name."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One bound."""

    name: str
    default: int
    unit: str
    """What is counted, in the plural."""

    reason: str
    fixed: str = ""
    """What makes it one that nobody can raise; empty for those that can be raised."""

    @property
    def value(self) -> int:
        """The bound that counts now."""
        return _GIVEN.get({}).get(self.name, self.default)

    def exceeded_message(self, found: int, *, counting: bool = False) -> str:
        """
        Return what was found, the bound and what raises it, as the end of a sentence; an empty text
        within the bound.

        :param counting: whether there may be more than ``found``: it was counted only up to the
            bound
        """
        most = self.value
        if found <= most:
            return ""
        enough = 2 * most if counting else found
        if self.fixed and counting:
            enough = min(enough, self.default)
        way = f"; raise the limit with --limit {self.name}={self.amount(enough, gap='')}"
        if self.fixed and (most >= self.default or enough > self.default):
            way = f", which is {self.fixed} and cannot be raised"
        unit = "" if self.unit == BYTES else f" {self.unit}"
        amount = f"{'at least ' if counting else ''}{self.amount(found)}{unit}"
        return f"{amount}, more than the {self.amount(most)} of {self.name}{way}"

    def amount(self, count: int, gap: str = " ") -> str:
        """
        Return a count as it is told, bytes in units and never too few of them; ``gap`` stands
        before the unit.
        """
        if self.unit != BYTES:
            return str(count)
        size, word = next(
            (
                one
                for one in _UNITS
                if count >= _FEW * one[0] or (count >= one[0] and not count % one[0])
            ),
            (1, ""),
        )
        return f"{-(-count // size)}{gap}{word}" if word else f"{count}{gap and f'{gap}{BYTES}'}"

    def check(self, value: int) -> int:
        """
        Return a bound that somebody asks for.

        :raises UsageError: for one that is none, or beyond what is fixed.
        """
        if value < 1:
            raise UsageError(f"the limit {self.name} cannot be {value}; the minimum is 1")
        if self.fixed and value > self.default:
            raise UsageError(
                f"the limit {self.name} cannot be raised above {self.amount(self.default)}, which "
                f"is {self.fixed}"
            )
        return value


_UNITS: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

JSON_BYTES: Final = Limit(
    "json-bytes",
    256 * 2**20,
    BYTES,
    "The largest known config has 1 MB (EfficientNetV2-L); vocabularies in "
    "configs reach tens of MB.",
)
JSON_DEPTH: Final = Limit(
    "json-depth",
    200,
    "levels",
    (
        "Real configs stay below 40 levels (nested models in wrappers). The same limit applies "
        "to YAML."
    ),
    fixed="the maximum within Python's own limit of 1,000 nested calls",
)
YAML_BYTES: Final = Limit(
    "yaml-bytes",
    8 * 2**20,
    BYTES,
    "Reading YAML takes twenty times as long as JSON, 15 seconds for this size. "
    "EfficientNetV2-L's config is 1 MB.",
)
YAML_VALUES: Final = Limit(
    "yaml-values",
    2_000_000,
    "values",
    "Counted after expansion of aliases: a few lines of nested aliases can "
    "expand to billions of values. EfficientNetV2-L's config has 60,000.",
)
JSON_VALUES: Final = Limit(
    "json-values",
    5_000_000,
    "values",
    "Counted by brackets and commas; each takes up to a hundred bytes. EfficientNetV2-L's config "
    "has 60,000, vocabularies in configs reach a million.",
)
LAYERS: Final = Limit(
    "layers",
    100_000,
    "layers",
    "A shared layer counts once per use. EfficientNetV2-L has 1,031 layers.",
)
LAYER_CALLS: Final = Limit(
    "layer-calls",
    100_000,
    "calls",
    "Layers in a converted model; layers in a nested model count once for each "
    "call. EfficientNetV2-L has 1,031.",
)
PATH_CHARACTERS: Final = Limit(
    "path-characters",
    64 * 2**20,
    "characters",
    "The paths of all layers, or of all groups' links in HDF5: each repeats the names above it. "
    "EfficientNetV2-L's have 50,000.",
)
LAYER_DEPTH: Final = Limit(
    "layer-depth",
    60,
    "levels",
    "Nested layers in the objects of a SavedModel; real ones stay below 10.",
    fixed="the maximum within Python's own limit of 1,000 nested calls",
)
H5_OBJECTS: Final = Limit(
    "h5-objects",
    1_000_000,
    "objects",
    "Groups, datasets and links together; EfficientNetV2-L's file has 4,000.",
)
H5_DEPTH: Final = Limit(
    "h5-depth", 64, "levels", "Nested groups; nested models in wrappers reach about 15."
)
H5_ATTRIBUTES: Final = Limit(
    "h5-attributes",
    10_000,
    "attributes",
    "Attributes of a rewritten group or dataset, or parts of one text: HDF5 gets "
    "slower with their number. Keras writes one for each 64 kB of names.",
)
H5_RATIO: Final = Limit(
    "h5-ratio",
    50,
    "times",
    "Ratio of the size of the values to their stored size, for a dataset above 4 "
    "MiB and for all datasets above 64 MiB. Compression shrinks pruned weights "
    "to a tenth and other weights hardly at all.",
)
H5_TEXT_BYTES: Final = Limit(
    "h5-text-bytes",
    256 * 2**20,
    BYTES,
    "Of an attribute. Texts of variable length each count as much as the whole file, because "
    "all of them may be the same text.",
)
H5_RANK: Final = Limit(
    "h5-rank",
    32,
    "dimensions",
    "Of a dataset, or of a tensor in a TensorFlow.js model, which has at most 6.",
    fixed="HDF5's own bound (H5S_MAX_RANK)",
)
ZIP_MEMBERS: Final = Limit(
    "zip-members", 100_000, "members", "A `.keras` file has 3 members and one per asset or shard."
)
ZIP_RATIO: Final = Limit(
    "zip-ratio",
    200,
    "times",
    "Uncompressed over compressed size. Keras stores members uncompressed; deflated JSON reaches "
    "about 40.",
)
INFLATED_BYTES: Final = Limit(
    "inflated-bytes",
    16 * 2**30,
    BYTES,
    "A compressed weights member must be decompressed to a temporary file before it can be read.",
)
WEIGHTS_SHARDS: Final = Limit(
    "weights-shards",
    10_000,
    "files",
    "Weights files of one model; Keras writes shards of 5 GB by default.",
)
PROTO_BYTES: Final = Limit(
    "proto-bytes",
    2**31 - 1,
    BYTES,
    "The largest SavedModel graph is one message.",
    fixed="protobuf's own bound for a message",
)
GRAPHS: Final = Limit(
    "graphs",
    1_000,
    "graphs",
    "Of a SavedModel, one for each use: TF 1 exports three, for serving, training and evaluation.",
)
PROTO_MESSAGES: Final = Limit(
    "proto-messages",
    5_000_000,
    "messages",
    "Nested messages: each needs 2 bytes in the file and 80 in memory. The graph "
    "of EfficientNetV2-L has a million.",
)
OBJECT_NODES: Final = Limit(
    "object-nodes",
    2_000_000,
    "objects",
    "Nodes of a SavedModel's object graph; EfficientNetV2-L has about 20,000.",
)
OBJECT_DEPTH: Final = Limit(
    "object-depth",
    200,
    "levels",
    "Object nesting depth on the shortest path to a variable; real models stay below 20.",
)
TRACE_STEPS: Final = Limit(
    "trace-steps",
    10_000_000,
    "steps",
    "Ops of a SavedModel's entry points with their inputs, calls and scopes, each counted as "
    "often as it is called; EfficientNetV2-L needs about 100,000.",
)
SCOPE_DEPTH: Final = Limit("scope-depth", 100, "levels", "Nested scopes; real ones stay below 30.")
CALL_DEPTH: Final = Limit(
    "call-depth",
    200,
    "levels",
    "Nested functions; a layer in a loop in a nested model reaches about 10.",
)
CHECKPOINT_INDEX_BYTES: Final = Limit(
    "checkpoint-index-bytes",
    256 * 2**20,
    BYTES,
    "The index of EfficientNetB0 has 18 kB, about 60 bytes per tensor. The same "
    "limit applies to all keys together, because prefix compression multiplies "
    "them.",
)
CHECKPOINT_ENTRIES: Final = Limit(
    "checkpoint-entries",
    1_000_000,
    "tensors",
    "Tensors and slices of tensors; models have thousands, each up to three times with an "
    "optimizer's slots.",
)
CHECKPOINT_KEY_BYTES: Final = Limit(
    "checkpoint-key-bytes",
    64 * 2**10,
    BYTES,
    "A key is a path through objects or scopes; real ones have a few hundred bytes.",
)
CHECKPOINT_ENTRY_BYTES: Final = Limit(
    "checkpoint-entry-bytes",
    2**20,
    BYTES,
    ("An entry needs about 30 bytes, plus the same for each slice of a partitioned variable."),
)
CHECKPOINT_SHARDS: Final = Limit(
    "checkpoint-shards",
    99_999,
    "files",
    "Files of one checkpoint.",
    fixed="the maximum for a five-digit number in a file's name",
)
CHECKPOINT_RANK: Final = Limit(
    "checkpoint-rank",
    254,
    "dimensions",
    "Of a tensor in a checkpoint.",
    fixed="TensorFlow's own bound (TensorShape::MaxDimensions)",
)
CHECKPOINT_STRING_BYTES: Final = Limit(
    "checkpoint-string-bytes",
    256 * 2**20,
    BYTES,
    "A tensor of strings is read whole to verify it; vocabularies reach tens of MB.",
)
CHECKPOINT_GRAPH_BYTES: Final = Limit(
    "checkpoint-graph-bytes",
    32 * 2**20,
    BYTES,
    "The object graph, which grows about thirtyfold when parsed; that of a model with 20,000 "
    "objects has about 2 MB.",
)
SETTINGS_BYTES: Final = Limit(
    "settings-bytes",
    2**20,
    BYTES,
    "A settings file with an option on every line has 3 kB.",
    fixed="checked before any option is read",
)
LIST_BYTES: Final = Limit(
    "list-bytes", 64 * 2**20, BYTES, "Paths on stdin: a million of them take about that much."
)
PIPE_SECONDS: Final = Limit(
    "pipe-seconds",
    10,
    "seconds",
    "Time to wait for the end of a pipe with a baseline, a plan, settings or "
    "paths, and for the reader of a report.",
)
READ_SECONDS: Final = Limit(
    "read-seconds",
    3600,
    "seconds",
    "For one file in a separate process: EfficientNetV2-L needs one second, and "
    "an hour is enough to read a terabyte of values from a disk.",
)
CALL_SECONDS: Final = Limit(
    "call-seconds",
    10,
    "seconds",
    "Processor time in one library call, which cannot be stopped otherwise: HDF5 "
    "loops endlessly over some damaged files. Parsing 2 GiB of protobuf or 256 "
    "MiB of JSON, the slowest cases, needs less.",
)
LIBRARY_BYTES: Final = Limit(
    "library-bytes",
    896 * 2**20,
    BYTES,
    "Additional memory while the HDF5 library reads: it stores a text of "
    "`h5-text-bytes` three times, and a process stays below 1 GiB.",
)
WRITE_SECONDS: Final = Limit(
    "write-seconds",
    4 * READ_SECONDS.default,
    "seconds",
    "The same for a file that is rewritten: values are read to be counted, read to be written, "
    "written, and read back.",
)
ANSWER_BYTES: Final = Limit(
    "answer-bytes",
    2**30,
    BYTES,
    "Result of a worker process: a layer needs about 300 bytes, and `layers` "
    "limits their number; a diff needs configs, which `json-bytes` limits.",
)
EVENT_BYTES: Final = Limit(
    "event-bytes",
    64 * 2**20,
    BYTES,
    "Result of the TensorFlow process; a report on the layers of the largest "
    "known model needs less than 1 MiB.",
)

LIMITS: Final = {
    limit.name: limit for limit in tuple(globals().values()) if isinstance(limit, Limit)
}
"""All of them by name."""


def limit_from_name(name: str) -> Limit:
    """
    Return the limit of a name.

    :raises UsageError: where none has it.
    """
    if name not in LIMITS:
        raise UsageError(
            f"unknown limit {name!r}{did_you_mean(name, LIMITS)} Run `policytool limits` for a list"
        )
    return LIMITS[name]


@contextmanager
def override(values: Mapping[str, int]) -> Iterator[None]:
    """
    Let these bounds count, by name, in place of the usual ones; other bounds that are given around
    this stay.

    :raises UsageError: for a name that no limit has, and a value that it cannot take.
    """
    token = _GIVEN.set(
        {
            **_GIVEN.get({}),
            **{name: limit_from_name(name).check(value) for name, value in values.items()},
        }
    )
    try:
        yield
    finally:
        _GIVEN.reset(token)


def overrides() -> Mapping[str, int]:
    """Return the bounds that were given, by name: what another process has to be told."""
    return _GIVEN.get({})
