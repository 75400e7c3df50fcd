"""
Limits for untrusted files, each with a name and the reason for its default.

The defaults are far above the needs of published models, and low enough to protect the machine. The
user can set other values with ``--limit NAME=VALUE`` or an argument of the Python API, which
:func:`override` applies. :attr:`Limit.value` is the value in effect.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.support.errors import UsageError
from policytool.support.text.phrases import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BYTES: Final = "bytes"

_FEW: Final = 10
"""Minimum amount in a unit of bytes: smaller amounts use the next smaller unit."""

RATIO: Final = "times"
"""The unit of limits whose value does not determine the time or memory that a file needs."""

_FARTHEST: Final = 1_000
"""Messages suggest values up to this multiple of the default; larger values take days."""

_GIVEN: ContextVar[Mapping[str, int]] = ContextVar("policytool.support.limits")
"""The values that the user set, by the name of the limit."""

_HAS_OPTION: ContextVar[bool] = ContextVar("policytool.support.limits.option", default=True)
"""Whether the user can set limits, which messages then suggest."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit, with its default and the reason for it."""

    name: str
    default: int
    unit: str
    """The unit of the value, in the plural."""

    reason: str
    fixed: str = ""
    """Why the limit cannot be raised above its default; empty if it can be raised."""

    @property
    def value(self) -> int:
        """The value in effect."""
        return _GIVEN.get({}).get(self.name, self.default)

    @property
    def user_value(self) -> int | None:
        """The value that the user set; None if the default is in effect."""
        return _GIVEN.get({}).get(self.name)

    def exceeded_message(self, count: int, *, counting: bool = False) -> str:
        """
        Return the count, the limit and how to raise it, as the end of a sentence. Return an empty
        text if the count does not exceed the limit.

        :param counting: whether the real number may be larger than ``count``, because counting
            stopped at the limit
        """
        most = self.value
        if count <= most:
            return ""
        sufficient_value = max(2 * most, count) if counting else count
        if self.fixed and counting:
            sufficient_value = min(sufficient_value, self.default)
        if self.fixed and (most >= self.default or sufficient_value > self.default):
            advice = f", which cannot be raised because it is {self.fixed}"
        elif _HAS_OPTION.get() and (
            self.unit == RATIO or sufficient_value <= _FARTHEST * self.default
        ):
            new_limit = self.amount(sufficient_value, gap="")
            advice = f"; raise the limit with --limit {self.name}={new_limit}"
        else:
            advice = ""
        unit = "" if self.unit == BYTES else f" {self.unit}"
        amount = f"{'at least ' if counting else ''}{self.amount(count)}{unit}"
        return f"{amount}, above the {self.name} limit of {self.amount(most)}{advice}"

    def amount(self, count: int, gap: str = " ") -> str:
        """
        Return a count as text. Bytes are rounded up to a unit such as MiB.

        :param gap: the text between the number and the unit
        """
        if self.unit != BYTES:
            return str(count)
        size, word = next(
            (
                unit
                for unit in _UNITS
                if count >= _FEW * unit[0] or (count >= unit[0] and not count % unit[0])
            ),
            (1, ""),
        )
        return f"{-(-count // size)}{gap}{word}" if word else f"{count}{gap and f'{gap}{BYTES}'}"

    def check(self, value: int) -> int:
        """
        Return a value for this limit that the user requests.

        :raises UsageError: if the value is below 1, or above the default of a fixed limit.
        """
        if value < 1:
            raise UsageError(f"the limit {self.name} cannot be {value}; the minimum is 1")
        if self.fixed and value > self.default:
            raise UsageError(
                f"the limit {self.name} cannot be raised above {self.amount(self.default)}, "
                f"because that is {self.fixed}"
            )
        return value


_UNITS: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))

JSON_BYTES: Final = Limit(
    "json-bytes",
    256 * 2**20,
    BYTES,
    "The largest known config (EfficientNetV2-L) is 1 MB. Vocabularies in configs can reach "
    "tens of MB.",
)
JSON_DEPTH: Final = Limit(
    "json-depth",
    200,
    "levels",
    (
        "Real configs stay below 40 levels, even with nested models in wrappers. The limit "
        "also applies to YAML."
    ),
    fixed="the maximum that Python's limit of 1,000 nested calls allows",
)
YAML_BYTES: Final = Limit(
    "yaml-bytes",
    8 * 2**20,
    BYTES,
    "Parsing YAML of this size takes 15 seconds, twenty times as long as JSON. The "
    "EfficientNetV2-L config is 1 MB.",
)
YAML_VALUES: Final = Limit(
    "yaml-values",
    2_000_000,
    "values",
    "Values are counted after aliases are expanded, because a few lines of nested aliases "
    "can expand to billions of values. The EfficientNetV2-L config has 60,000 values.",
)
JSON_VALUES: Final = Limit(
    "json-values",
    5_000_000,
    "values",
    "policytool counts brackets and commas to estimate the number of values. Each value needs "
    "up to a hundred bytes of memory. The EfficientNetV2-L config has 60,000 values. "
    "Vocabularies in configs have up to a million entries.",
)
FILE_STEPS: Final = Limit(
    "file-steps",
    10_000_000,
    "steps",
    "Number of steps in all walks over the content of one file: values, layers, calls, links and "
    "graph nodes. A step takes one to ten microseconds. EfficientNetV2-L needs up to 500,000 "
    "steps, and a vocabulary with a million entries three million.",
)
LAYERS: Final = Limit(
    "layers",
    100_000,
    "layers",
    "A shared layer counts once per use. EfficientNetV2-L has 1,031 layers.",
)
LAYER_CALLS: Final = Limit(
    "layer-calls",
    25_000,
    "calls",
    "Layer calls in a converted model. Layers in a nested model count once for each call of "
    "that model. EfficientNetV2-L has 1,031 layers.",
)
PATH_CHARACTERS: Final = Limit(
    "path-characters",
    64 * 2**20,
    "characters",
    "Total length of all layer paths, or of all link paths in HDF5 groups. Each path "
    "repeats the names of its parents. The paths in EfficientNetV2-L have 50,000 characters "
    "in total.",
)
LAYER_DEPTH: Final = Limit(
    "layer-depth",
    60,
    "levels",
    "Nesting depth of layer objects in a SavedModel. Real models stay below 10.",
    fixed="the maximum that Python's limit of 1,000 nested calls allows",
)
H5_OBJECTS: Final = Limit(
    "h5-objects",
    1_000_000,
    "objects",
    "Groups, datasets and links together. The EfficientNetV2-L file has 4,000 of them.",
)
H5_REPEATED_LINKS: Final = Limit(
    "h5-repeated-links",
    10_000,
    "links",
    "Links in groups that several hard links lead to, counted again for each path but the first. "
    "Keras writes each group once.",
)
H5_DEPTH: Final = Limit(
    "h5-depth", 64, "levels", "Nesting depth of groups. Nested models in wrappers reach about 15."
)
H5_ATTRIBUTES: Final = Limit(
    "h5-attributes",
    10_000,
    "attributes",
    "Attributes of a rewritten group or dataset, or attributes that together store one list "
    "of names. HDF5 slows down as their number grows. Keras writes one attribute for each "
    "64 kB of names.",
)
H5_RATIO: Final = Limit(
    "h5-ratio",
    50,
    RATIO,
    "Expanded size of the values divided by their stored size, for each dataset above 4 MiB "
    "and for all datasets together above 64 MiB; also for all variables of an Orbax checkpoint. "
    "Compression reduces pruned weights to a tenth of their size, but has little effect on other "
    "weights.",
)
H5_TEXT_BYTES: Final = Limit(
    "h5-text-bytes",
    256 * 2**20,
    BYTES,
    "Size of the text in an attribute. A variable-length text is assumed to be as large as the "
    "file, because several texts can refer to the same bytes.",
)
H5_RANK: Final = Limit(
    "h5-rank",
    32,
    "dimensions",
    (
        "Dimensions of a dataset, or of a tensor in a TensorFlow.js model or in an Orbax "
        "checkpoint. TensorFlow.js supports at most 6."
    ),
    fixed="the HDF5 maximum (H5S_MAX_RANK)",
)
ZIP_MEMBERS: Final = Limit(
    "zip-members",
    100_000,
    "members",
    "A `.keras` file has 3 members, plus one for each asset or shard.",
)
ZIP_RATIO: Final = Limit(
    "zip-ratio",
    200,
    RATIO,
    "Uncompressed size divided by compressed size. Keras stores members uncompressed. "
    "Compressed JSON reaches about 40.",
)
INFLATED_BYTES: Final = Limit(
    "inflated-bytes",
    16 * 2**30,
    BYTES,
    "Compressed weights must be decompressed to a temporary file before they can be read.",
)
WEIGHTS_SHARDS: Final = Limit(
    "weights-shards",
    10_000,
    "files",
    "Weights files of one model. Keras writes shards of 5 GB by default.",
)
PROTO_BYTES: Final = Limit(
    "proto-bytes",
    2**31 - 1,
    BYTES,
    "The graph of a SavedModel is a single message.",
    fixed="the protobuf maximum for one message",
)
GRAPHS: Final = Limit(
    "graphs",
    1_000,
    "graphs",
    ("Graphs in a SavedModel. TF 1 exports one graph each for serving, training and evaluation."),
)
PROTO_MESSAGES: Final = Limit(
    "proto-messages",
    5_000_000,
    "messages",
    "Nested messages. Each message needs 2 bytes in the file and 80 bytes in memory. The "
    "EfficientNetV2-L graph has a million messages.",
)
OBJECT_NODES: Final = Limit(
    "object-nodes",
    2_000_000,
    "objects",
    "Nodes in the object graph of a SavedModel. EfficientNetV2-L has about 20,000.",
)
OBJECT_DEPTH: Final = Limit(
    "object-depth",
    200,
    "levels",
    ("Nesting depth of objects on the shortest path to a variable. Real models stay below 20."),
)
TRACE_STEPS: Final = Limit(
    "trace-steps",
    2_000_000,
    "steps",
    "Number of steps needed to follow the ops of a SavedModel's entry points, including their "
    "inputs, calls and scopes. Each op counts once for each call. EfficientNetV2-L needs "
    "about 100,000.",
)
SCOPE_DEPTH: Final = Limit(
    "scope-depth", 100, "levels", "Nesting depth of scopes. Real graphs stay below 30."
)
CALL_DEPTH: Final = Limit(
    "call-depth",
    200,
    "levels",
    "Nesting depth of functions. A layer in a loop in a nested model reaches a depth of about 10.",
)
CHECKPOINT_INDEX_BYTES: Final = Limit(
    "checkpoint-index-bytes",
    256 * 2**20,
    BYTES,
    "The EfficientNetB0 index is 18 kB, about 60 bytes per tensor. The limit also applies to "
    "the decompressed keys, which can be much larger than the index.",
)
CHECKPOINT_ENTRIES: Final = Limit(
    "checkpoint-entries",
    1_000_000,
    "tensors",
    "Tensors and slices of tensors, also in an Orbax checkpoint. Models have thousands of tensors, "
    "and up to three times as many with the slots of an optimizer.",
)
CHECKPOINT_KEY_BYTES: Final = Limit(
    "checkpoint-key-bytes",
    64 * 2**10,
    BYTES,
    "A key is a path through objects or scopes. Real keys are a few hundred bytes long.",
)
CHECKPOINT_ENTRY_BYTES: Final = Limit(
    "checkpoint-entry-bytes",
    2**20,
    BYTES,
    ("An entry needs about 30 bytes, plus 30 bytes for each slice of a partitioned variable."),
)
CHECKPOINT_SHARDS: Final = Limit(
    "checkpoint-shards",
    99_999,
    "files",
    "Files of one checkpoint.",
    fixed="the maximum for a five-digit number in a file name",
)
CHECKPOINT_RANK: Final = Limit(
    "checkpoint-rank",
    254,
    "dimensions",
    "Dimensions of a tensor in a checkpoint.",
    fixed="the TensorFlow maximum (TensorShape::MaxDimensions)",
)
CHECKPOINT_STRING_BYTES: Final = Limit(
    "checkpoint-string-bytes",
    256 * 2**20,
    BYTES,
    "String tensors are read completely to verify their checksums. Vocabularies can reach "
    "tens of MB.",
)
CHECKPOINT_GRAPH_BYTES: Final = Limit(
    "checkpoint-graph-bytes",
    32 * 2**20,
    BYTES,
    "The object graph grows about thirtyfold when it is parsed. The graph of a model with "
    "20,000 objects is about 2 MB.",
)
SETTINGS_BYTES: Final = Limit(
    "settings-bytes",
    2**20,
    BYTES,
    "A settings file that sets every option is about 3 kB.",
    fixed="checked before any option is read",
)
LIST_BYTES: Final = Limit(
    "list-bytes", 64 * 2**20, BYTES, "Paths from stdin. A million paths need about 64 MiB."
)
PATTERN_SIZE: Final = Limit(
    "pattern-size",
    5_000,
    "states",
    "Characters of a regular expression, or states after its counted repetitions are expanded. "
    "`(a{1,1000}){1,1000}` has a million states.",
)
PATTERN_STEPS: Final = Limit(
    "pattern-steps",
    20_000_000,
    "steps",
    "Steps to match the patterns of a file, of a settings file or of options against the names of "
    "one model or file. A layer path of 30 characters takes 30 steps for each pattern; a million "
    "steps take about 0.2 seconds.",
)
MESSAGE_BYTES: Final = Limit(
    "message-bytes",
    2**20,
    BYTES,
    "Error messages for `explain`. A traceback with the whole config of a large model is about "
    "100 kB.",
)
PIPE_SECONDS: Final = Limit(
    "pipe-seconds",
    10,
    "seconds",
    "Time to wait for a pipe to deliver a complete baseline, plan, settings file or list of "
    "paths, or to accept a report.",
)
REMOTE_SECONDS: Final = Limit(
    "remote-seconds",
    60,
    "seconds",
    "Time for one request to a server, with its repetitions. A range of a remote file has at most "
    "8 MiB, which a connection of 2 Mbit/s transfers in half of this time.",
)
REMOTE_NAMES: Final = Limit(
    "remote-names",
    1_000_000,
    "names",
    "Number of names in one remote directory, or in all directories of a remote model. A server "
    "lists 1,000 names in each answer.",
)
REMOTE_CACHE_BYTES: Final = Limit(
    "remote-cache-bytes",
    64 * 2**20,
    BYTES,
    "Memory for the parts of remote files that were read. Reading the structure of the largest "
    "known models needs less than 16 MiB; beyond the limit, parts are read again.",
)
REMOTE_ANSWER_BYTES: Final = Limit(
    "remote-answer-bytes",
    768 * 2**20,
    BYTES,
    "Additional memory that the process may use during one request to a server. Backends read "
    "whole answers, of any size, and collect all names of a directory before they return: about "
    "1 KiB for each name.",
)
REMOTE_PATH_BYTES: Final = Limit(
    "remote-path-bytes",
    4_096,
    BYTES,
    "Length of a remote path. Object stores have names of at most 1,024 bytes, and Linux has paths "
    "of at most 4,096; a server may list directories in directories without end.",
)
REMOTE_FILE_BYTES: Final = Limit(
    "remote-file-bytes",
    16 * 2**30,
    BYTES,
    "Size of the files of one MLflow model that policytool downloads to temporary files, because "
    "the server does not deliver parts of them.",
)
READ_SECONDS: Final = Limit(
    "read-seconds",
    3600,
    "seconds",
    "Time to read one file in a separate process. EfficientNetV2-L takes one second, and "
    "an hour is enough to read a terabyte of values from disk.",
)
CALL_SECONDS: Final = Limit(
    "call-seconds",
    10,
    "seconds",
    "CPU time of one library call, which Python cannot interrupt. Some damaged files cause an "
    "infinite loop in HDF5. The slowest valid calls parse 2 GiB of protobuf or 256 MiB of JSON "
    "and finish within the limit.",
)
LIBRARY_BYTES: Final = Limit(
    "library-bytes",
    896 * 2**20,
    BYTES,
    "Additional memory that the process may use while the HDF5 library or TensorStore reads. HDF5 "
    "needs memory for three copies of a text; `h5-text-bytes` limits its size. TensorStore needs "
    "memory for two copies of the part of a variable that one device wrote. The whole process "
    "stays below 1 GiB.",
)
WRITE_SECONDS: Final = Limit(
    "write-seconds",
    4 * READ_SECONDS.default,
    "seconds",
    "Time to rewrite one file. policytool reads the values twice, writes them, and reads the "
    "new file to verify it.",
)
ANSWER_BYTES: Final = Limit(
    "answer-bytes",
    2**30,
    BYTES,
    "Size of the result of a worker process. A layer needs about 300 bytes, and `layers` "
    "limits the number of layers. The result of a diff also contains configs, whose size "
    "`json-bytes` limits.",
)
CACHE_BYTES: Final = Limit(
    "cache-bytes",
    2**30,
    BYTES,
    "Size of the results in a `--cache` directory. At the end of a run, policytool removes the "
    "results that have not been used for the longest time. A result takes about 10 kB, and at "
    "most 1/64 of this limit.",
)
ENVIRONMENT_BYTES: Final = Limit(
    "environment-bytes",
    24 * 2**30,
    BYTES,
    "Size of the environments that uv makes for `--python RELEASE`. Before another is made, those "
    "that have not been used for the longest time are removed. One takes 0.6 to 1.5 GiB, and all "
    "together 26 GiB.",
)
EVENT_BYTES: Final = Limit(
    "event-bytes",
    64 * 2**20,
    BYTES,
    "Size of the result of the TensorFlow process. A report on the layers of the largest "
    "known model needs less than 1 MiB.",
)
INPUT_BATCHES: Final = Limit(
    "input-batches",
    1000,
    "batches",
    "Number of batches from a `check --inputs` function, unless `--batches` is set. Some "
    "functions yield batches endlessly.",
)
INPUT_BYTES: Final = Limit(
    "input-bytes",
    2**30,
    BYTES,
    "Size of the arrays from a `check --inputs` function, which stay in memory during the check. A "
    "batch of 32 images of 224 x 224 pixels needs 18 MiB.",
)

TENSORFLOW_SECONDS: Final = Limit(
    "tensorflow-seconds",
    600,
    "seconds",
    "Time of the TensorFlow process for one model. The default applies only to the verification "
    "that `migrate --target` runs without `--verify`. Everything else that runs TensorFlow has a "
    "time limit only if you set it.",
)
TENSORFLOW_BYTES: Final = Limit(
    "tensorflow-bytes",
    2 * 2**30,
    BYTES,
    "Memory of the TensorFlow process. The default applies only to the verification that "
    "`migrate --target` runs without `--verify`, in addition to six times the size of the weights "
    "and the memory that TensorFlow uses when it starts. Everything else that runs TensorFlow has "
    "a memory limit only if you set it.",
)

LIMITS: Final = {
    limit.name: limit for limit in tuple(globals().values()) if isinstance(limit, Limit)
}
"""All limits by name."""


def limit_from_name(name: str) -> Limit:
    """
    Return the limit with a name.

    :raises UsageError: if there is none.
    """
    if name not in LIMITS:
        raise UsageError(
            f"unknown limit {name!r}{did_you_mean(name, LIMITS)} Run `policytool explain limits` "
            "for a list"
        )
    return LIMITS[name]


@contextmanager
def override(values: Mapping[str, int]) -> Iterator[None]:
    """
    Set limits by name for the duration of a block. Other limits that an enclosing block set stay in
    effect.

    :raises UsageError: for an unknown name or an invalid value.
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


@contextmanager
def without_option() -> Iterator[None]:
    """Leave out of messages how to raise a limit, for a block in which the user cannot."""
    token = _HAS_OPTION.set(False)
    try:
        yield
    finally:
        _HAS_OPTION.reset(token)


def overrides() -> Mapping[str, int]:
    """Return the limits that the user set, by name, for other processes."""
    return _GIVEN.get({})
