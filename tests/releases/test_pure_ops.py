"""The reviewed list of pure ops: how it is built, and what is not on it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

import policytool
from policytool.releases import data, symbols
from tests.helpers.cases import for_each

DATA: Final[dict[str, Any]] = json.loads(
    (Path(policytool.__file__).parent / "releases" / "data" / "pure_ops.json").read_text(
        encoding="utf-8"
    )
)
LISTED: Final = tuple(name for group in DATA["ops"].values() for name in group)
HARMFUL: Final = tuple(
    name for key in ("ops", "readers", "programs") for name in data.read("hazards")[key]
)
"""
Ops of TensorFlow that take a file, a directory or an address, read files, hold a program, or call
Python.
"""

REFUSED: Final = (
    *(
        "DatasetFromGraph",
        "WholeFileReaderV2",
        "ReaderReadV2",
        "XlaCallModule",
        "XlaCustomCallV2",
        "XlaLaunch",
        "MlirPassthroughOp",
        "TRTEngineOp",
    ),
    *(
        "DecodeProtoV2",
        "EncodeProto",
        "ImmutableConst",
        "DumpTensor",
        "CalibrationStatisticsSaver",
        "FileSystemSetConfiguration",
        "RpcClient",
        "RemoteCall",
    ),
    *(
        "Copy",
        "CopyHost",
        "DebugIdentityV2",
        "WriteRawProtoSummary",
        "Abort",
        "ReadFile",
        "WriteFile",
        "PyFuncStateless",
        "MatchingFiles",
        "Skipgram",
    ),
    *(
        "Send",
        "_Recv",
        "FIFOQueueV2",
        "IteratorV2",
        "CollectiveReduceV2",
        "TPUExecute",
        "SentencepieceOp",
        "SimpleMLInferenceOpWithHandle",
    ),
    *("", "abs", "Abs ", "NobodyRegisteredThis"),
)


def test_groups_are_sorted_and_have_no_common_op() -> None:
    """A review then sees every change of the list once."""
    assert [
        name for name, group in DATA["ops"].items() if group != sorted(group) or not group
    ] == []
    assert [name for name, count in Counter(LISTED).items() if count > 1] == []
    assert list(DATA["ops"]) == sorted(DATA["ops"], key=str.lower)


def test_names_are_names_of_ops() -> None:
    """Internal ops begin with an underscore, and TensorFlow does not import them from a file."""
    assert [
        name
        for name in LISTED
        if not (name.isidentifier() and name.isascii() and name[0].isupper())
    ] == []


@pytest.mark.parametrize(
    "name",
    [
        "AddV2",
        "Conv2D",
        "StatefulPartitionedCall",
        "While",
        "RandomUniform",
        "VarHandleOp",
        "HashTableV2",
        "Assert",
    ],
)
def test_op_that_computes_is_pure(name: str) -> None:
    """TensorFlow marks some of these as stateful."""
    assert symbols.is_pure_op(name)


@for_each("name", REFUSED)
def test_op_with_outside_effects_is_not_pure(name: str) -> None:
    """An op without a review is not pure either."""
    assert not symbols.is_pure_op(name)


@for_each("name", HARMFUL)
def test_no_op_with_a_file_an_address_or_python_is_pure(name: str) -> None:
    """Nothing is on both lists."""
    assert not symbols.is_pure_op(name)


def test_saver_and_table_ops_are_not_pure_but_have_path_inputs() -> None:
    """Such ops are allowed only with accepted paths."""
    assert {name for name in DATA["placed"] if symbols.is_pure_op(name)} == set()
    assert {name: len(paths) for name, paths in DATA["placed"].items()} == {
        name: len(symbols.path_inputs(name)) for name in DATA["placed"]
    }
    assert set(DATA["positions"]) == set(DATA["placed"])
    assert symbols.path_inputs("SaveV2") == (0,)
    assert symbols.path_inputs("MergeV2Checkpoints") == (0, 1)
    assert symbols.path_inputs("InitializeTableFromTextFileV2") == (1,)
    assert symbols.path_inputs("AddV2") == symbols.path_inputs("ReadFile") == ()


def test_op_with_a_file_attribute_is_not_pure_by_name() -> None:
    """The value of the attribute decides."""
    assert {name for name in DATA["attributes"] if symbols.is_pure_op(name)} == set()
    assert symbols.attribute_values("FixedUnigramCandidateSampler") == {"vocab_file": ("",)}
    assert "stderr" in symbols.attribute_values("PrintV2")["output_stream"]
    assert symbols.attribute_values("AddV2") == symbols.attribute_values("ReadFile") == {}
