"""Each limit rejects the next larger value with its name, and an option raises it."""

from __future__ import annotations

import json
import os
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

import policytool
from policytool.formats import format_detection
from policytool.numerics.workers import Interpreter, Worker
from policytool.rules.stored_values import read_values
from policytool.support import limits
from policytool.support.errors import UsageError, WorkerError
from policytool.support.limits import LIMITS
from policytool.support.text import protobuf_messages
from tests.conftest import MIXED_JSON, MIXED_YAML, Ended, run, run_process
from tests.helpers import bundles
from tests.helpers.convertible_models import input2, keras2, layer2
from tests.helpers.marks import ALONE, THOROUGH
from tests.helpers.paths import ROOT
from tests.helpers.small_models import (
    Object,
    dense,
    h5_model,
    keras_members,
    keras_object,
    keras_zip,
    saved_model,
    sequential,
    small_saved_model,
    weights_bytes,
)
from tests.helpers.special_files import WAITING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Build = "Callable[[Path], Path]"

OPTION: Final = re.compile(
    r", above the ([a-z0-9-]+) limit of [\w ]+[;.] [Rr]aise the limit with --limit "
    r"(([a-z0-9-]+)=\w+)"
)
ROUNDS: Final = 16
"""A count that stopped at the bound says no more than that: each round allows twice as much."""


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """A file that is beyond a limit, once that is lowered."""

    limit: str
    lowered: int
    build: Callable[[Path], Path]
    code: str
    arguments: tuple[str, ...] = ()
    """Beside ``inspect`` and the file."""


def _json(directory: Path) -> Path:
    path = directory / "a.json"
    path.write_text(json.dumps(sequential()), encoding="utf-8")
    return path


def _yaml(directory: Path) -> Path:
    path = directory / "a.yaml"
    path.write_bytes(MIXED_YAML.read_bytes())
    return path


def _linked_group(directory: Path) -> Path:
    path = _h5(directory)
    with h5py.File(path, "a") as file:
        file["model_weights/dense_b"] = file["model_weights/dense_a"]
    return path


def _h5(directory: Path) -> Path:
    return h5_model(directory / "a.h5", sequential())


def _layers(directory: Path) -> Path:
    return h5_model(directory / "a.h5", sequential(*(dense(f"d{number}") for number in range(9))))


def _shared(directory: Path) -> Path:
    layer = {**dense("same"), "shared_object_id": 7}
    return h5_model(directory / "a.h5", sequential(*[layer] * 9))


def _named_weights(directory: Path) -> Path:
    path = directory / "a.h5"
    with h5py.File(path, "w") as file:
        file.attrs["layer_names"] = np.array([b"dense_a"])
        file["dense_a/dense_a/kernel:0"] = np.zeros((6, 2), dtype="float16")
        file["dense_a/dense_a/bias:0"] = np.zeros(2, dtype="float16")
        file["dense_a"].attrs["weight_names"] = [
            "dense_a/kernel:0"
        ]  # of any length, as h5py writes a list of str
    return path


def _two_weights(directory: Path) -> Path:
    return keras_zip(directory / "a.keras", {**keras_members(), "b.weights.h5": weights_bytes()})


def _keras(directory: Path) -> Path:
    return keras_zip(directory / "a.keras")


def _packed(directory: Path) -> Path:
    return keras_zip(
        directory / "a.keras",
        {**keras_members(), "model.weights.h5": weights_bytes()},
        compression=zipfile.ZIP_DEFLATED,
    )


def _unpacked(directory: Path) -> Path:
    for name, data in keras_members().items():
        (directory / name).write_bytes(data)
    return directory


def _vocabularies(directory: Path) -> Path:
    words = {f"assets/{name}/vocabulary.txt": b"w\n" * 400 for name in ("a", "b", "c")}
    return keras_zip(directory / "a.keras", {**keras_members(), **words})


def _saved(directory: Path) -> Path:
    return small_saved_model(directory / "a")


def _saved_apart(directory: Path) -> Path:
    return small_saved_model(directory / "a", separate=True)


def _scopes(directory: Path) -> Path:
    return saved_model(
        directory / "a",
        [
            Object(children=[("dense", 1), ("norm", 2)]),
            *(Object(variable=(f"{name}/kernel", 1, (2,))) for name in ("dense", "norm")),
        ],
    )


def _metadata(directory: Path) -> Path:
    path = _saved_apart(directory) / "keras_metadata.pb"
    message: Any = protobuf_messages.parse("KerasMetadata", path.read_bytes())
    fields = b"".join(
        b"\n" + bundles.varint(len(body)) + body
        for number, (node, place) in enumerate(
            zip(message.nodes, (b"root", b"root.layer-0"), strict=True)
        )
        for body in [
            b"\x10"
            + bundles.varint(number)
            + _field(3, place)
            + _field(4, node.identifier)
            + _field(5, node.metadata)
        ]
    )
    alone = directory / "alone.pb"
    alone.write_bytes(fields)
    return alone


def _field(number: int, data: bytes) -> bytes:
    return bundles.varint(number << 3 | 2) + bundles.varint(len(data)) + data


def _nested(directory: Path) -> Path:
    chain = [
        keras_object(
            "mlp", "Sequential", identifier="_tf_keras_sequential", children=[("layer-0", 1)]
        )
    ]
    return saved_model(
        directory / "a",
        [
            *chain,
            *(
                keras_object(f"l{number}", "Dense", children=[("inner", number + 1)])
                for number in range(1, 6)
            ),
        ][:-1],
    )


def _tfjs(directory: Path) -> Path:
    path = directory / "model.json"
    weights = [
        {"name": f"dense_a/{name}", "shape": shape, "dtype": "float32"}
        for name, shape in (("kernel", [6, 2]), ("bias", [2]))
    ]
    path.write_text(
        json.dumps(
            {"modelTopology": sequential(), "weightsManifest": [{"paths": [], "weights": weights}]}
        ),
        encoding="utf-8",
    )
    return path


def _map_of_shards(directory: Path) -> Path:
    for number in range(3):
        (directory / f"m_0000{number}.weights.h5").write_bytes(weights_bytes())
    path = directory / "m.weights.json"
    names = {f"/layers/dense_{number}/vars": [f"m_0000{number}.weights.h5"] for number in range(3)}
    path.write_text(json.dumps({"metadata": {}, "weight_map": names}), encoding="utf-8")
    return path


def _graph(directory: Path, *, deep: bool) -> Path:
    """Write a SavedModel with nested functions, or with an op in nested scopes."""
    path = small_saved_model(directory / "a")
    saved: Any = protobuf_messages.parse("SavedModel", (path / "saved_model.pb").read_bytes())
    definition: Any = protobuf_messages.parse("GraphDef", b"")
    scope = "a/" * 9 if deep else ""
    main = definition.nodes.add(name=f"{scope}out".encode(), op=b"PartitionedCall")
    main.attributes.add(key=b"f").value.function.name = b"f0"
    for level in range(9):
        function = definition.library.functions.add()
        function.signature.name = f"f{level}".encode()
        call = function.nodes.add(name=b"call", op=b"PartitionedCall")
        call.attributes.add(key=b"f").value.function.name = f"f{level + 1}".encode()
    saved.meta_graphs[0].graph_def[:] = [definition.SerializeToString()]
    saved.meta_graphs[0].signatures.add(key=b"serve").value.outputs.add(
        key=b"y"
    ).value.name = f"{scope}out:0".encode()
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    return path


def _calls(directory: Path) -> Path:
    return _graph(directory, deep=False)


def _deep_scopes(directory: Path) -> Path:
    return _graph(directory, deep=True)


def _graphs(directory: Path) -> Path:
    path = small_saved_model(directory / "a")
    data = (path / "saved_model.pb").read_bytes()
    (path / "saved_model.pb").write_bytes(data + b"\x12\x00" * 2)
    return path


_FLOAT: Final = ("float32", (1,), bytes(4))


def _names_in_parts(directory: Path) -> Path:
    path = _named_weights(directory)
    with h5py.File(path, "a") as file:
        holder = file["dense_a"]
        names = holder.attrs["weight_names"]
        del holder.attrs["weight_names"]
        for number in range(3):
            holder.attrs[f"weight_names{number}"] = names
    return path


def _checkpoint(directory: Path) -> Path:
    chain = [*(([("n", index + 1)], []) for index in range(9)), ([], [("", "x")])]
    bundles.write(
        directory / "a", {**dict([bundles.object_graph(chain)]), "x": _FLOAT, "another/key": _FLOAT}
    )
    return directory / "a.index"


def _two_shards(directory: Path) -> Path:
    bundles.write(directory / "a", {"x": _FLOAT})
    (directory / "a.data-00000-of-00002").write_bytes(bytes(4))
    bundles.write_index(
        directory / "a",
        [[bundles.header(shards=2), (b"x", bundles.entry(*_FLOAT).SerializeToString())]],
    )
    return directory / "a.index"


def _square(directory: Path) -> Path:
    bundles.write(directory / "a", {"x": ("float32", (1, 1), bytes(4))})
    return directory / "a.index"


CASES: Final = (
    Beyond(limit="json-bytes", lowered=100, build=_h5, code="json-limit"),
    Beyond(limit="json-bytes", lowered=100, build=_json, code="json-limit"),
    Beyond(limit="json-bytes", lowered=100, build=_tfjs, code="json-limit"),
    Beyond(limit="json-bytes", lowered=100, build=_keras, code="zip-limit"),
    Beyond(limit="json-bytes", lowered=1000, build=_vocabularies, code="zip-limit"),
    Beyond(limit="json-bytes", lowered=100, build=_unpacked, code="json-limit"),
    Beyond(limit="json-bytes", lowered=100, build=_map_of_shards, code="json-limit"),
    Beyond(limit="json-bytes", lowered=100, build=_saved, code="json-limit"),
    Beyond(limit="json-bytes", lowered=100, build=_saved_apart, code="json-limit"),
    Beyond(limit="json-bytes", lowered=100, build=_metadata, code="json-limit"),
    Beyond(limit="file-steps", lowered=9, build=_h5, code="step-limit"),
    Beyond(limit="file-steps", lowered=9, build=_json, code="step-limit"),
    Beyond(limit="json-values", lowered=9, build=_h5, code="json-limit"),
    Beyond(limit="json-values", lowered=9, build=_json, code="json-limit"),
    Beyond(limit="path-characters", lowered=9, build=_json, code="layer-limit"),
    Beyond(limit="path-characters", lowered=9, build=_h5, code="h5-limit"),
    Beyond(limit="path-characters", lowered=9, build=_saved, code="layer-limit"),
    Beyond(limit="h5-text-bytes", lowered=9, build=_named_weights, code="h5-limit"),
    Beyond(limit="h5-attributes", lowered=1, build=_names_in_parts, code="h5-limit"),
    Beyond(limit="graphs", lowered=2, build=_graphs, code="proto-limit"),
    Beyond(limit="proto-messages", lowered=3, build=_saved, code="proto-limit"),
    Beyond(limit="proto-messages", lowered=3, build=_calls, code="proto-limit"),
    Beyond(limit="proto-messages", lowered=3, build=_checkpoint, code="checkpoint-limit"),
    Beyond(limit="layers", lowered=3, build=_shared, code="layer-limit"),
    Beyond(limit="weights-shards", lowered=1, build=_two_weights, code="zip-limit"),
    Beyond(limit="json-depth", lowered=4, build=_json, code="json-limit"),
    Beyond(limit="json-depth", lowered=4, build=_yaml, code="yaml-limit"),
    Beyond(limit="yaml-bytes", lowered=100, build=_yaml, code="yaml-limit"),
    Beyond(limit="yaml-values", lowered=9, build=_yaml, code="yaml-limit"),
    Beyond(limit="layers", lowered=3, build=_layers, code="layer-limit"),
    Beyond(limit="layers", lowered=1, build=_scopes, code="layer-limit"),
    Beyond(limit="layers", lowered=1, build=_saved, code="layer-limit"),
    Beyond(limit="layer-depth", lowered=2, build=_nested, code="layer-limit"),
    Beyond(limit="h5-objects", lowered=3, build=_h5, code="h5-limit"),
    Beyond(limit="h5-repeated-links", lowered=1, build=_linked_group, code="h5-limit"),
    Beyond(limit="h5-depth", lowered=1, build=_h5, code="h5-limit"),
    Beyond(limit="h5-rank", lowered=1, build=_h5, code="h5-limit"),
    Beyond(limit="h5-rank", lowered=1, build=_tfjs, code="json-limit"),
    Beyond(limit="zip-members", lowered=2, build=_keras, code="zip-limit"),
    Beyond(limit="zip-ratio", lowered=1, build=_packed, code="zip-limit"),
    Beyond(limit="inflated-bytes", lowered=100, build=_packed, code="zip-limit"),
    Beyond(limit="weights-shards", lowered=1, build=_map_of_shards, code="h5-limit"),
    Beyond(limit="proto-bytes", lowered=10, build=_saved, code="proto-limit"),
    Beyond(limit="proto-bytes", lowered=10, build=_metadata, code="proto-limit"),
    Beyond(limit="object-nodes", lowered=1, build=_saved, code="proto-limit"),
    Beyond(limit="object-nodes", lowered=1, build=_metadata, code="proto-limit"),
    Beyond(limit="object-nodes", lowered=2, build=_checkpoint, code="checkpoint-limit"),
    Beyond(limit="object-depth", lowered=3, build=_checkpoint, code="checkpoint-limit"),
    Beyond(limit="checkpoint-index-bytes", lowered=100, build=_checkpoint, code="checkpoint-limit"),
    Beyond(limit="checkpoint-entries", lowered=1, build=_checkpoint, code="checkpoint-limit"),
    Beyond(limit="checkpoint-key-bytes", lowered=8, build=_checkpoint, code="checkpoint-limit"),
    Beyond(limit="checkpoint-entry-bytes", lowered=3, build=_checkpoint, code="checkpoint-limit"),
    Beyond(limit="checkpoint-shards", lowered=1, build=_two_shards, code="checkpoint-limit"),
    Beyond(limit="checkpoint-rank", lowered=1, build=_square, code="checkpoint-limit"),
    Beyond(limit="checkpoint-string-bytes", lowered=9, build=_checkpoint, code="checkpoint-limit"),
    Beyond(limit="checkpoint-graph-bytes", lowered=9, build=_checkpoint, code="checkpoint-limit"),
)

OBSERVED: Final = (
    Beyond(limit="trace-steps", lowered=3, build=_calls, code="graph-limit"),
    Beyond(limit="call-depth", lowered=3, build=_calls, code="graph-limit"),
    Beyond(limit="scope-depth", lowered=3, build=_deep_scopes, code="graph-limit"),
)
"""What a report lacks, and says so, where a graph is beyond a limit."""

OF_VALUES: Final = frozenset({"h5-ratio", "layer-calls"})
"""Limits on what only some commands read or follow, each with a test of its own below."""

OF_PROCESSES: Final = frozenset(
    {
        "read-seconds",
        "write-seconds",
        "answer-bytes",
        "event-bytes",
        "call-seconds",
        "library-bytes",
        "tensorflow-seconds",
        "tensorflow-bytes",
    }
)
"""
Limits that hold for another process, each with a test of its own below; of the last two in
test_guard.py.
"""

OF_OTHER_FILES: Final = frozenset({"settings-bytes", "list-bytes", "pipe-seconds"})
"""Limits on what is read beside models, each with a test in test_given_files.py."""

OF_PATTERNS: Final = frozenset({"pattern-size", "pattern-steps"})
"""Those in ``tests/support/patterns/test_matching.py`` and ``tests/cli/test_found_settings.py``."""

OF_MESSAGES: Final = frozenset({"message-bytes"})
"""Limits on the message that ``explain`` is given; tests in test_explain.py."""

OF_CACHES: Final = frozenset({"cache-bytes", "environment-bytes"})
"""Limits on what is kept for later runs; tests in test_cache.py and test_releases_on_demand.py."""

OF_INPUTS: Final = frozenset({"input-batches", "input-bytes"})
"""Limits on what a function of ``check --inputs`` returns; tests in test_input_functions.py."""

OF_SERVERS: Final = frozenset(
    {
        *("remote-seconds", "remote-names", "remote-cache-bytes", "remote-file-bytes"),
        *("remote-answer-bytes", "remote-path-bytes"),
    }
)
"""
Limits on what servers are asked for; tests in test_remote.py, test_remote_bounds.py and
test_model_registry.py.
"""


def _inspected(case: Beyond, path: Path, bound: str) -> Ended:
    return run("inspect", path, *case.arguments, "--format", "json", "--limit", bound)


def _told(case: Beyond, ended: Ended) -> str | None:
    """Return the sentence in which a report names the limit; None where it does not."""
    failures = ended.json["failures"] or [
        item for model in ended.json["models"] for item in model["observations"]
    ]
    assert ended.code == (3 if ended.json["failures"] else 0)
    return next(
        (
            item["message"]
            for item in failures
            if item["code"] == case.code and f" the {case.limit} limit" in item["message"]
        ),
        None,
    )


def _bound(case: Beyond) -> str:
    return f"{case.limit}={case.lowered}"


def test_every_limit_has_a_case() -> None:
    """A new one cannot be forgotten."""
    assert (
        {case.limit for case in (*CASES, *OBSERVED)}
        | OF_VALUES
        | OF_PROCESSES
        | OF_OTHER_FILES
        | OF_MESSAGES
        | OF_PATTERNS
        | OF_CACHES
        | OF_INPUTS
        | OF_SERVERS
        == set(LIMITS)
    )


@THOROUGH
@pytest.mark.parametrize(
    "case", [*CASES, *OBSERVED], ids=lambda case: f"{case.limit}-{case.build.__name__.strip('_')}"
)
def test_file_above_a_limit_is_reported_with_a_sufficient_option(
    case: Beyond, tmp_path: Path
) -> None:
    """The error names the size, the limit and an option, which is sufficient."""
    path = case.build(tmp_path)
    usual = run("inspect", path, "--format", "json")
    assert usual.code == 0
    assert _told(case, usual) is None
    sentence = _told(case, _inspected(case, path, _bound(case)))
    assert sentence is not None
    for _ in range(ROUNDS):
        result = OPTION.search(sentence)
        assert result is not None, sentence
        assert result[1] == result[3] == case.limit
        ended = _inspected(case, path, result[2])
        again = _told(case, ended)
        if again is None:
            break
        sentence = again
    assert ended.json["models"] == usual.json["models"]


@pytest.mark.parametrize("case", CASES[:1])
def test_python_functions_accept_limits(case: Beyond, tmp_path: Path) -> None:
    """The names are those of the command line, and each limit applies to one call."""
    path = case.build(tmp_path)
    usual = policytool.inspect(path)
    with pytest.raises(policytool.support.errors.ModelFileError, match="--limit json-bytes="):
        policytool.inspect(path, limit={case.limit: case.lowered})
    for call in (policytool.audit, policytool.migrate):
        with pytest.raises(policytool.support.errors.ModelFileError, match="--limit json-bytes="):
            call(path, limit={case.limit: case.lowered})
    with pytest.raises(policytool.support.errors.ModelFileError, match="--limit json-bytes="):
        policytool.diff(path, path, limit={case.limit: case.lowered})
    with pytest.raises(policytool.support.errors.ModelFileError, match="--limit json-bytes="):
        policytool.check(path, to="mixed_float16", limit={case.limit: case.lowered})
    assert policytool.inspect(path) == usual


@pytest.mark.parametrize(
    "command",
    [("inspect",), ("audit",), ("migrate",), ("diff", MIXED_JSON), ("check",)],
    ids=lambda command: command[0],
)
def test_every_command_that_reads_models_applies_limits(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    """All commands have the same message and the same code."""
    ended = run(*command, _h5(tmp_path), "--limit", "json-bytes=100")
    assert ended.code == 3
    assert (
        "above the json-bytes limit of 100 bytes. Raise the limit with --limit json-bytes="
        in ended.err
    )


@pytest.mark.parametrize(
    "limit", [limit for limit in LIMITS.values() if limit.fixed], ids=lambda limit: limit.name
)
def test_limits_of_formats_and_libraries_cannot_be_raised(
    limit: limits.Limit, tmp_path: Path
) -> None:
    """The message names the format or the library that has the limit."""
    ended = run("inspect", _h5(tmp_path), "--limit", f"{limit.name}={limit.default + 1}")
    assert ended.code == 2
    assert limit.fixed in ended.err
    assert limit.fixed in limit.exceeded_message(limit.default + 1)
    assert "--limit" not in limit.exceeded_message(limit.default + 1)


@pytest.mark.parametrize(
    ("bound", "words"),
    [
        ("json-byte=1", "Unknown limit 'json-byte'. Did you mean 'json-bytes'?"),
        ("json-bytes", "does not have the form NAME=VALUE"),
        ("json-bytes=many", "'many' is not a size"),
        ("json-bytes=0", "'0' is not a size"),
        ("layers=0", "The limit layers cannot be 0"),
        ("layers=-1", "'-1' is not a number of layers"),
        ("layers=1K", "'1K' is not a number of layers"),
    ],
)
def test_unknown_limit_is_wrong_usage(bound: str, words: str, tmp_path: Path) -> None:
    """The error suggests a similar limit or describes the form."""
    ended = run("inspect", _h5(tmp_path), "--limit", bound)
    assert ended.code == 2
    assert words in ended.err


def test_api_rejects_an_unknown_limit(tmp_path: Path) -> None:
    """The error is that of the command line."""
    with pytest.raises(UsageError, match="unknown limit 'size'"):
        policytool.inspect(_h5(tmp_path), limit={"size": 1})


@pytest.mark.parametrize(
    ("found", "most", "says"),
    [
        (
            101,
            100,
            (
                "101 bytes, above the json-bytes limit of 100 bytes; raise the limit with "
                "--limit json-bytes=101"
            ),
        ),
        (
            300 * 2**20,
            256 * 2**20,
            (
                "300 MiB, above the json-bytes limit of 256 MiB; raise the limit with "
                "--limit json-bytes=300MiB"
            ),
        ),
        (
            256 * 2**20 + 1,
            256 * 2**20,
            (
                "257 MiB, above the json-bytes limit of 256 MiB; raise the limit with "
                "--limit json-bytes=257MiB"
            ),
        ),
        (
            2**30,
            2**20,
            (
                "1 GiB, above the json-bytes limit of 1 MiB; raise the limit with --limit "
                "json-bytes=1GiB"
            ),
        ),
        (100, 100, ""),
    ],
)
def test_bytes_are_printed_in_units(found: int, most: int, says: str) -> None:
    """Numbers are rounded up, so that the suggested limit is sufficient."""
    with limits.override({"json-bytes": most}):
        assert limits.JSON_BYTES.exceeded_message(found) == says


def test_settings_that_were_merely_found_raise_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that policytool finds itself cannot raise limits; named files and variables can."""
    monkeypatch.chdir(tmp_path)
    path = _h5(tmp_path)
    settings = tmp_path / "policytool.toml"
    settings.write_text('limit = ["json-bytes=100"]\n', encoding="utf-8")
    result = run("inspect", path)
    assert result.code == 2
    assert "sets 'limit', which only a settings file specified with --config may set" in result.err
    assert run("inspect", path, "--config", settings).code == 3
    shown = run("inspect", "--config", settings, "--show-settings")
    assert 'limit = ["json-bytes=100"]' in shown.out
    settings.unlink()
    monkeypatch.setenv("POLICYTOOL_LIMIT", "json-bytes=100 layers=7")
    assert run("inspect", path).code == 3
    assert run("inspect", path, "--limit", "json-bytes=1GiB").code == 0


def test_limits_are_listed() -> None:
    """The list has each limit with its reason, as a table and JSON; the shell completes names."""
    table, rows = (
        run("explain", "limits").out,
        run("explain", "limits", "--format", "json").json["limits"],
    )
    assert [row["name"] for row in rows] == list(LIMITS)
    assert [row["value"] for row in rows] == [limit.default for limit in LIMITS.values()]
    words = " ".join(table.split())
    assert all(
        f"{limit.name} {limit.amount(limit.default)} " in words and limit.reason in words
        for limit in LIMITS.values()
    )


def test_a_limit_exceeded_many_times_has_no_suggestion() -> None:
    """A file that needs far more would take days with any limit."""
    near = limits.LAYER_CALLS.exceeded_message(2 * limits.LAYER_CALLS.default)
    assert near.endswith("; raise the limit with --limit layer-calls=50000")
    far = limits.LAYER_CALLS.exceeded_message(2**60)
    assert far == f"{2**60} calls, above the layer-calls limit of 25000"


def test_a_suggested_limit_is_at_least_the_count() -> None:
    """A limit below what was counted would fail again."""
    with limits.override({"layers": 3}):
        assert limits.LAYERS.exceeded_message(8, counting=True).endswith("--limit layers=8")
        assert limits.LAYERS.exceeded_message(4, counting=True).endswith("--limit layers=6")


# Limits on values


@pytest.mark.parametrize("kind", ["one", "all"])
def test_values_that_are_not_stored_are_not_read(kind: str, tmp_path: Path) -> None:
    """Datasets without stored values are not read unless an option permits it."""
    path = h5_model(tmp_path / "a.h5", sequential(*(dense(f"d{number}") for number in range(99))))
    with h5py.File(path, "a") as file:
        for number in range(99):
            group = file.require_group(f"model_weights/d{number}/d{number}")
            if kind == "one" and not number:
                group.create_dataset(
                    "kernel:0", (2**20, 2), "float32", chunks=(2**10, 2), fillvalue=1
                )
            elif kind == "all":
                group["kernel:0"] = (
                    file["model_weights/d0/d0/kernel:0"]
                    if number
                    else np.zeros((2**18, 1), "float32")
                )
    document = format_detection.document(path, path.name)
    says = "stored bytes would expand to" if kind == "one" else "all datasets together would expand"
    unread = read_values(path, document, None, {}).unread
    assert set(unread) == {
        tensor.path
        for tensor in document.tensors or ()
        if kind == "all" or tensor.shape == (2**20, 2)
    }
    assert all(says in reason for reason in unread.values())
    result = OPTION.search(next(iter(unread.values())))
    assert result is not None
    assert result[1] == "h5-ratio"
    with limits.override({"h5-ratio": int(result[2].partition("=")[2])}):
        stored = read_values(path, document, None, {})
    assert not stored.unread
    assert set(stored.counts) == {tensor.path for tensor in document.tensors or ()}
    if kind == "one":
        ended = run(
            "migrate", path, "--to", "float16", "--set", "mlp/d0=float16", "-o", tmp_path / "b.h5"
        )
        assert ended.code == 3
        assert "--limit h5-ratio=" in ended.err


@pytest.mark.parametrize("class_name", ["Flatten", "Masking"])
def test_repeated_calls_of_nested_models_count_each_time(tmp_path: Path, class_name: str) -> None:
    """A chain of models that call another model twice has an exponential number of calls."""
    model = keras2(input2("x", 3), layer2(class_name, "d", [["x", 0, 0, {}]]))
    for level in range(20):
        inner = layer2("Functional", f"m{level}", [["x", 0, 0, {}]], [[f"m{level}", 1, 0, {}]]) | {
            "config": {**model["config"], "name": f"m{level}"}
        }
        model = keras2(input2("x", 3), inner)
        model["config"]["output_layers"] = [[f"m{level}", 2, 0]]
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    ended = run("migrate", path, "--target", "keras3", "-o", tmp_path / "out.json")
    assert ended.code == 3
    result = OPTION.search(" ".join((ended.err + ended.out).split()))
    assert result is not None, ended.out
    assert result[1] == result[3] == "layer-calls"
    assert not (tmp_path / "out.json").exists()


# Limits of other processes


@ALONE
@THOROUGH
def test_workers_have_the_limits_of_the_command(tmp_path: Path) -> None:
    """Each worker gets the limits of the option."""
    paths = [h5_model(tmp_path / f"{name}.h5", sequential()) for name in "ab"]
    for jobs in ("1", "2"):
        ended = run_process(
            "inspect", *paths, "--jobs", jobs, "--format", "json", "--limit", "json-bytes=100"
        )
        assert [failure["code"] for failure in ended.json["failures"]] == [
            "json-limit",
            "json-limit",
        ]


@ALONE
@THOROUGH
def test_answers_of_processes_are_bounded(tmp_path: Path) -> None:
    """A file with a longer report is a failure, whose message has the option that permits it."""
    paths = [h5_model(tmp_path / f"{name}.h5", sequential()) for name in "ab"]
    ended = run_process(
        "inspect", *paths, "--jobs", "2", "--format", "json", "--limit", "answer-bytes=100"
    )
    assert {failure["code"] for failure in ended.json["failures"]} == {"worker-limit"}
    result = OPTION.search(ended.json["failures"][0]["message"])
    assert result is not None
    assert result[1] == "answer-bytes"
    assert run_process("inspect", *paths, "--jobs", "2", "--limit", "answer-bytes=1MiB").code == 0


@ALONE
@THOROUGH
@pytest.mark.parametrize(
    ("command", "limit"), [("inspect", "read-seconds"), ("migrate", "write-seconds")]
)
def test_time_of_processes_is_bounded(command: str, limit: str, tmp_path: Path) -> None:
    """A file that is never done is given up."""
    h5_model(tmp_path / "a.h5", sequential())
    os.mkfifo(tmp_path / "b.h5")
    (tmp_path / "sitecustomize.py").write_text(WAITING, encoding="utf-8")
    waiting = {"PYTHONPATH": os.pathsep.join(map(str, (tmp_path, ROOT)))}
    writer = os.open(tmp_path / "b.h5", os.O_RDWR)
    try:
        ended = run_process(
            command,
            tmp_path / "a.h5",
            tmp_path / "b.h5",
            "--jobs",
            "2",
            "--format",
            "json",
            "--limit",
            f"{limit}=2",
            environment=waiting,
        )
    finally:
        os.close(writer)
    assert ended.code == 3
    (failure,) = ended.json["failures"]
    assert failure["code"] == "worker-timeout"
    assert (
        f"took at least 3 seconds, above the {limit} limit of 2; raise the limit with "
        f"--limit {limit}=4" in failure["message"]
    )


def test_answers_of_the_process_with_tensorflow_are_bounded(tmp_path: Path) -> None:
    """An endless line is not kept in memory, and a line within the limit is an answer."""
    script = tmp_path / "child.py"
    script.write_text(
        "import json, os, sys\nfor line in sys.stdin:\n    os.write(int(sys.argv[1]), "
        "json.dumps({'result': {'a': 'x' * 5000}}).encode() + b'\\n')\n",
        encoding="utf-8",
    )
    with (
        limits.override({"event-bytes": 100}),
        Worker(Interpreter(script=script)) as worker,
        pytest.raises(WorkerError) as caught,
    ):
        worker.run({})
    assert caught.value.code == "worker-limit"
    assert re.search(r"; raise the limit with --limit event-bytes=[5-9]\d{3}$", str(caught.value))
    with limits.override({"event-bytes": 6000}), Worker(Interpreter(script=script)) as worker:
        assert worker.run({})["a"] == "x" * 5000
