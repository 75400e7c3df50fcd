"""
The list of pure ops against TensorFlow's own registry: every op exists, and none has an argument
that leads out of the graph.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.releases import data
from policytool.releases import symbols as _ops
from tests.compat.asking import ENVIRONMENT, SECONDS
from tests.helpers.scripts import run_captured

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

pytestmark = pytest.mark.compat

Registry = dict[str, list[tuple[str, str]]]
"""Op to the names and kinds of its arguments."""

CHILD: Final = Path(__file__).with_name("op_registry.py")
DATA: Final[dict[str, Any]] = json.loads(
    (Path(policytool.__file__).parent / "releases" / "data" / "pure_ops.json").read_text(
        encoding="utf-8"
    )
)
LISTED: Final = tuple(name for group in DATA["ops"].values() for name in group)
LEAST: Final = 1500
"""Ops that TensorFlow registers, at least; with fewer, the registry was not read."""

SUSPECT_OP: Final = re.compile(
    r"File|Reader|Dataset|Iterator|Queue|Barrier|Py|Rpc|Recv|Send|Remote|Collective|TPU|Summary|Debug|Dump|Print|Save|Restore|Checkpoint"
    r"|CallModule|CustomCall|Launch|Mlir|Proto|^Copy|Session|Stage|Abort|Engine"
)
"""
Names of ops that read, write, send, or run something, including those without an argument that says
so, such as WholeFileReaderV2.
"""

SUSPECT_ARGUMENT: Final = re.compile(
    r"file|path|pattern|address|ur[il]|serialized|token|graph|module|executable|program|script|library|plugin|prefix|vocab|config|proto|metadata|descriptor"
    r"|basename|region|(^|_)(logdir|dirs?|directory|hosts?|ports?|servers?|sources?|targets?|devices?|stream|engine|message_type)(_|$)"
)

_SUMMARIES: Final = (
    *(
        "AudioSummary",
        "AudioSummaryV2",
        "HistogramSummary",
        "ImageSummary",
        "MergeSummary",
        "ScalarSummary",
        "TensorSummary",
        "TensorSummaryV2",
    ),
)
OPS: Final = {
    **dict.fromkeys(_SUMMARIES, "returns the summary as bytes; other ops write it"),
    "Print": "prints to standard error, and nowhere else",
    "XlaOptimizationBarrier": "returns its tensors, and keeps XLA from moving ops across it",
}
"""Pure ops that the pattern matches, with the reason why they are pure."""

_CALLS: Final = {"PartitionedCall", "StatefulPartitionedCall"}
ARGUMENTS: Final[Mapping[str, tuple[set[str], str]]] = {
    "allowed_devices": ({"VarHandleOp"}, "the devices of this process that may hold the variable"),
    "config": (_CALLS, "a RewriterConfig, the older form of config_proto"),
    "config_proto": (
        _CALLS,
        (
            "a ConfigProto that says how the function is optimised and run; optimisers in it are "
            "those "
            "that the process has"
        ),
    ),
    "device_names": ({"DeviceIndex"}, "kinds of devices, CPU and GPU"),
    "host_reserved": (
        {"CudnnRNNBackpropV2", "CudnnRNNBackpropV3"},
        "a tensor that the forward op returned",
    ),
    "metadata": (
        {"CompositeTensorVariantFromComponents", "CompositeTensorVariantToComponents"},
        "the type of the composite tensor",
    ),
    "pattern": (
        {"RegexFullMatch", "RegexReplace", "StaticRegexFullMatch", "StaticRegexReplace"},
        "a regular expression, matched with strings in memory",
    ),
    "precision_config": (
        {"XlaConv", "XlaConvV2", "XlaDot", "XlaDotV2", "XlaSvd"},
        "the precisions of the operands",
    ),
    "recall_target": ({"ApproxTopK"}, "a number"),
    "serialized": (
        {
            *(
                "ParseExample",
                "ParseExampleV2",
                "ParseSequenceExample",
                "ParseSequenceExampleV2",
                "ParseSingleExample",
            ),
            *("ParseSingleSequenceExample", "ParseTensor"),
        },
        "tensors, or tf.train.Example messages, as bytes in memory",
    ),
    "serialized_sparse": (
        {"DeserializeManySparse", "DeserializeSparse"},
        "sparse tensors, each as three tensors",
    ),
    "description": ({"TensorSummary"}, "text that becomes part of the summary"),
    "serialized_summary_metadata": (
        {"TensorSummaryV2"},
        "a message that becomes part of the summary",
    ),
    "source": (
        {
            "TensorArrayGrad",
            "TensorArrayGradV2",
            "TensorArrayGradV3",
            "TensorArrayGradWithShape",
            "XlaSelectAndScatter",
        },
        "the name of a gradient, or a tensor of numbers",
    ),
    "targets": ({"InTopK", "InTopKV2"}, "the numbers of classes"),
    "top_paths": ({"CTCBeamSearchDecoder"}, "the number of results"),
    "xmp_metadata": ({"EncodeJpeg"}, "text that becomes part of the JPEG in memory"),
}
"""
Arguments of pure ops that the pattern matches, with the ops that may have them and the reason why
they lead nowhere.
"""

TEXT: Final = frozenset(
    {
        # names of things in memory, in messages and in profiles
        *(
            "container",
            "shared_name",
            "debug_name",
            "frame_name",
            "stack_name",
            "tensor_array_name",
            "var_name",
            "message",
            "names",
            "handle",
            "table_handle",
        ),
        # strings that are the data
        *(
            "bytes",
            "contents",
            "data",
            "input",
            "input_bytes",
            "inputs",
            "json_examples",
            "records",
            "string_tensor",
        ),
        # keys of tf.train.Example messages
        *(
            "context_dense_keys",
            "context_ragged_keys",
            "context_sparse_keys",
            "dense_keys",
            "ragged_keys",
            "sparse_keys",
            "feature_list_dense_keys",
        ),
        *(
            "feature_list_ragged_keys",
            "feature_list_sparse_keys",
            "feature_list_dense_missing_assumed_empty",
        ),
        # how strings are split, joined and written
        *(
            "delimiter",
            "encoding",
            "field_delim",
            "fill",
            "input_encoding",
            "left_pad",
            "na_value",
            "placeholder",
            "rewrite",
            "right_pad",
            "sep",
            "separator",
        ),
        "template",
        # names in summaries
        *("display_name", "labels", "tag", "tags"),
        # names of a variant of the computation
        *(
            "bad_indices_policy",
            "compression_type",
            "dct_method",
            "dimension_numbers",
            "dst_format",
            "equation",
            "executor_type",
            "fill_mode",
            "input_order",
        ),
        *(
            "interpolation",
            "kernel_type",
            "method",
            "mode",
            "noise",
            "padding",
            "row_partition_types",
            "set_operation",
            "src_format",
        ),
    }
)
"""Arguments of pure ops that take any string, beside those above: each was reviewed."""

CALLING: Final = frozenset(DATA["calling"])
"""Pure ops that call functions of the graph, whose ops are checked as those of the graph are."""

PLANTED: Final = (
    *(
        "ReadFile",
        "DatasetFromGraph",
        "WholeFileReaderV2",
        "SaveV2",
        "XlaCallModule",
        "PyFunc",
        "ImmutableConst",
        "DecodeProtoV2",
        "FileSystemSetConfiguration",
    ),
    *(
        "ShardedFilename",
        "FixedUnigramCandidateSampler",
        "RpcClient",
        "CopyHost",
        "WriteRawProtoSummary",
        "BoostedTreesCreateEnsemble",
        "Abort",
        "RemoteCall",
    ),
    *(
        "PrintV2",
        "DumpTensor",
        "CalibrationStatisticsSaver",
        "LoadAndRemapMatrix",
        "IteratorFromStringHandle",
        "MlirPassthroughOp",
        "XlaCustomCallV2",
    ),
)


@pytest.fixture(scope="module")
def registry(compat_python: Path) -> Registry:
    """Return the arguments of every op that TensorFlow registers."""
    environment = {**os.environ, **ENVIRONMENT}
    done = run_captured([compat_python, CHILD], env=environment, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    result: Registry = json.loads(done.stdout.splitlines()[-1])
    assert len(result) > LEAST
    return result


def complaints(registry: Registry, names: Sequence[str]) -> Iterator[str]:
    """Yield what in the names and arguments of ops leads out of the graph, or was not reviewed."""
    for name in names:
        if SUSPECT_OP.search(name) and name not in OPS:
            yield f"{name} by its name"
        for argument, kind in registry[name]:
            if kind != "type" and SUSPECT_ARGUMENT.search(argument):
                if name not in ARGUMENTS.get(argument, (set(), ""))[0]:
                    yield f"{name} by its {argument}"
            elif kind == "text" and argument not in TEXT:
                yield f"{name} by its text {argument}"


def test_every_listed_op_is_registered(registry: Registry) -> None:
    """A misspelled name would list nothing."""
    listed = {*LISTED, *DATA["placed"], *DATA["attributes"]}
    assert sorted(listed - set(registry)) == []


def test_no_listed_op_has_an_argument_that_leads_out_of_the_graph(registry: Registry) -> None:
    """
    No file, directory, pattern of files, address, serialized graph, program or Python token, except
    those that have a reason.
    """
    assert list(complaints(registry, LISTED)) == []


@pytest.mark.parametrize("name", PLANTED)
def test_planted_op_is_found(registry: Registry, name: str) -> None:
    """The test above fails with any of these ops on the list."""
    assert list(complaints(registry, [*LISTED[:5], name, *LISTED[5:10]])) != []


def test_ops_with_files_or_addresses_are_detected(registry: Registry) -> None:
    """The patterns match every op in ``hazards.json``."""
    missed = [
        name for name in data.read("hazards")["ops"] if not list(complaints(registry, [name]))
    ]
    assert missed == []


def test_every_exception_is_necessary(registry: Registry) -> None:
    """An unnecessary exception could allow an op of a later release."""
    assert set(OPS) <= set(LISTED)
    used: dict[str, set[str]] = defaultdict(set)
    texts: set[str] = set()
    for name in LISTED:
        for argument, kind in registry[name]:
            if argument in ARGUMENTS:
                used[argument].add(name)
            elif kind == "text":
                texts.add(argument)
    assert dict(used) == {argument: ops for argument, (ops, _) in ARGUMENTS.items()}
    assert texts == TEXT


def test_only_known_ops_call_functions(registry: Registry) -> None:
    """The guard checks these functions too, so it must know these ops."""
    assert {name for name in LISTED if any(kind == "call" for _, kind in registry[name])} == CALLING


def test_positions_of_paths_agree_with_the_named_inputs(registry: Registry) -> None:
    """The guard finds the paths of savers and tables by position."""
    for name, inputs in DATA["placed"].items():
        assert [registry[name][index][0] for index in _ops.path_inputs(name)] == inputs, name


def test_deciding_attributes_exist_in_the_registry(registry: Registry) -> None:
    """Each of these attributes accepts any string."""
    for name, attributes in DATA["attributes"].items():
        assert {(attribute, "text") for attribute in attributes} <= {
            (argument, kind) for argument, kind in registry[name]
        }, name
