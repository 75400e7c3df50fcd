"""
What is fuzzed: by name, what reads a text of bytes, what it is seeded with, and how its inputs are
changed.

An input is one text of bytes, whatever it stands for, so that the same inputs serve a loop and a
regression. Which command reads a model, and with which options, is decided by a checksum of the
input: a saved input always does what it did.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import zipfile
import zlib
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import h5py

from policytool import rules
from policytool.formats import format_detection, yaml_architecture
from policytool.formats.checkpoint import bundle as checkpoints
from policytool.formats.checkpoint import read as _checkpoint_names
from policytool.formats.rewriting import WriteError
from policytool.migration.convert import conversion_plan
from policytool.migration.planning.options import Options
from policytool.model import layer_policies, reading
from policytool.releases import generations
from policytool.releases.policy import PolicyMap
from policytool.releases.releases import LOADERS
from policytool.support.errors import BundleError, ModelFileError, SpellingError
from policytool.support.patterns.matching import Matcher
from policytool.support.text import jsonedit, jsontext, protobuf_splice, yamltext
from tests.conftest import run
from tests.fuzz import containers, found_settings, link_graphs, nests, oracle, trees, words
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from policytool.formats.document import Document
    from policytool.formats.writers import Apply

_LARGEST: Final = 24_000
"""Bytes of a seed; what a larger one has more of is the same again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One reader, or one pipeline, and its inputs."""

    name: str
    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes, Path], str]
    """
    Read an input, with a directory of its own; say in a word how it ended, and raise what breaks
    the contract.
    """

    mutate: Callable[[Random, bytes], bytes]
    forked: bool = False
    """Whether a library in C reads it, which may end the process or never return."""


def _checksum(data: bytes) -> int:
    return zlib.crc32(data)


# Texts and messages


def _json(data: bytes, _directory: Path) -> str:
    """Parse JSON, follow every pointer to a place in it, and edit some of them."""
    try:
        value, _ = jsontext.parse(data)
    except jsontext.JsonError as error:
        return error.code
    with contextlib.suppress(UnicodeDecodeError):
        _edit(data.decode("utf-8"), value, jsonedit.apply, json.loads)
    return "read"


def _edit(text: str, value: Any, apply: Apply, parse: Callable[[str], Any]) -> None:
    """
    Edit a text at one place; it then holds what was asked for, and nothing else has changed.
    """
    changes: list[jsonedit.Change] = []
    for pointer in _pointers(value, 40):
        held = jsontext.value(value, pointer)
        changes.append(
            (pointer, held, words.ODD[_checksum(repr(pointer).encode()) % len(words.ODD)])
        )
    if not changes:
        return
    change = changes[_checksum(text.encode("utf-8", "surrogatepass")) % len(changes)]
    try:
        edited = apply(text, [change])
    except jsonedit.EditError:
        return
    except WriteError as error:
        if "something else" in str(error):
            raise oracle.BrokenError(str(error)) from error
        return  # it would be too deep
    expected = json.loads(json.dumps(value))
    pointer, _, after = change
    holder, key = jsontext.place(expected, pointer)
    holder[key] = after
    if not jsonedit.same(parse(edited), expected):
        raise oracle.BrokenError(f"the edit at {pointer!r} made something else")


def _pointers(value: Any, most: int) -> Iterator[str]:
    pending = [("", value)]
    while pending and most > 0:
        pointer, held = pending.pop()
        items = (
            held.items()
            if isinstance(held, dict)
            else enumerate(held)
            if isinstance(held, list)
            else ()
        )
        for key, inner in items:
            most -= 1
            yield (way := f"{pointer}{jsontext.pointer(key)}")
            pending.append((way, inner))


def _yaml(data: bytes, _directory: Path) -> str:
    """Parse YAML, and edit it at a place."""
    text = data.decode("utf-8", "replace")
    try:
        value = yamltext.parse(text).value
    except yamltext.YamlError as error:
        return error.code
    _edit(text, value, yaml_architecture.apply, lambda edited: yamltext.parse(edited).value)
    return "read"


def _wire(data: bytes, _directory: Path) -> str:
    """Walk a message, and every field of it that is a message too."""
    pending = [(0, len(data))]
    steps = 0
    while pending and steps < 5000:
        start, end = pending.pop()
        try:
            for field in protobuf_splice.fields(data, start, end):
                steps += 1
                if field.span is not None:
                    pending.append((field.span.start, field.span.end))
        except protobuf_splice.WireError:
            continue
    try:
        list(protobuf_splice.spans(data, 5))
    except protobuf_splice.WireError:
        return "refused"
    return "read"


def _objects_of(data: bytes, _directory: Path) -> str:
    """Parse a checkpoint's object graph, and name what it holds."""
    try:
        graph = checkpoints.parse_object_graph(data)
        keys = {attribute.key for node in graph.nodes for attribute in node.attributes}
        entry: Any = _Entry()
        _checkpoint_names.name_entries(dict.fromkeys(keys, entry), graph)
    except ValueError:
        return "refused"
    except BundleError as error:
        return error.code
    return "read"


class _Entry:
    """Stands in for an entry of an index, of which naming needs the shape alone."""

    shape = (2,)


def _policy(data: bytes, _directory: Path) -> str:
    """Read a policy's spelling as every generation, and give it to layers."""
    try:
        value, _ = jsontext.parse(data)
    except jsontext.JsonError as error:
        return error.code
    result = "refused"
    for generation in generations.GENERATIONS:
        try:
            policy = generations.parse(value, generation)
            result = "read"
            if isinstance(policy, PolicyMap):
                _assigned(policy)
            generation.render(policy)
        except SpellingError:
            continue
    return result


def _assigned(policy: PolicyMap) -> None:
    for path in ("mlp/dense_a", "a" * 300, "", "mlp/" + "a/" * 100):
        for full in (True, False):
            try:
                layer_policies.resolve(policy, path, Matcher(), full_match=full)
            except layer_policies.UnclearPolicyError:
                continue


# Files


def _read(path: Path) -> str:
    """Read a model as inspect does, without a report of it."""
    try:
        reading.read(path, path.name)
    except ModelFileError as error:
        if not _CODE.fullmatch(error.code) or not error.message:
            raise oracle.BrokenError(
                f"no code or no sentence: {error.code!r} {error.message!r}"
            ) from error
        return error.code
    return "read"


_CODE: Final = re.compile(r"[a-z0-9-]+")


def _pick(choices: Sequence[Any], number: int) -> Any:
    return choices[number % len(choices)]


def _arguments(number: int, path: Path, other: Path | None) -> tuple[str | Path, ...]:
    """Return the command that a number chooses for a model."""
    kind, number = number % 16, number // 16
    if kind < 2:
        return (
            "inspect",
            path,
            "--format",
            _pick(("table", "markdown", "csv", "json"), number),
            "--variables",
        )
    if kind < 5:
        formats = ("table", "markdown", "json", "sarif", "junit", "github")
        return (
            "audit",
            path,
            "--format",
            _pick(formats, number),
            "--target",
            _pick(LOADERS, number // 6),
            "--device",
            _pick(("cpu", "gpu"), number // 100),
        )
    if kind < 6:
        return ("audit", path, "--weights", "--format", _pick(("table", "json"), number))
    if kind < 9:
        to = _pick(
            ("float32", "mixed_float16", "mixed_bfloat16", "float16", "bfloat16", "float64"), number
        )
        more = _pick(
            (
                (),
                (
                    "--include",
                    "exceptions",
                ),
                ("--keep", "loss-scale"),
                ("--include", "outputs"),
                ("--keep", "optimizer"),
            ),
            number // 6,
        )
        return (
            "migrate",
            path,
            "--to",
            to,
            "--preview",
            *more,
            "--format",
            _pick(("json", "diff"), number // 30),
        )
    if kind < 10 and other is not None:
        return ("diff", path, other, "--format", _pick(("table", "markdown", "json"), number))
    if kind < 11:
        return ("migrate", path, "--preview", "--format", _pick(("table", "diff"), number))
    return (
        "migrate",
        path,
        "--target",
        _pick(LOADERS, number),
        "--preview",
        "--format",
        _pick(("json", "json", "diff"), number // len(LOADERS)),
    )


def _commanded(path: Path, data: bytes, other: Path | None = None) -> str:
    """
    Run a command over a model, now and then one that writes; beside the output nothing has changed
    afterwards.
    """
    number = _checksum(data)
    arguments = _arguments(number, path, other)
    writes = arguments[0] == "migrate" and number % 7 == 0
    if not writes:
        return oracle.command(*arguments)
    output = path.with_name(
        "out"
        + (
            ""
            if path.is_dir()
            else path.suffix
            if "--target" not in arguments
            else _CONVERTED.get(path.suffix, path.suffix)
        )
    )
    kept = tuple(item for item in arguments if item != "--preview")
    before = _state(path.parent)
    try:
        ended = oracle.command(*kept, "-o", output)
        _remove(output)
        if _state(path.parent) != before:
            raise oracle.BrokenError(f"the directory is not what it was after {kept}")
    finally:
        _remove(output)
    return ended


_CONVERTED: Final = {".pb": ".json", ".yaml": ".json"}
"""The suffix of what a conversion writes, where that is another kind of file."""


def _state(directory: Path) -> dict[str, tuple[int, int]]:
    """Return what lies in a directory, but for its own time of modification."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            status = Path(folder, name).lstat()
            found[os.path.join(folder, name)] = (status.st_size, status.st_mtime_ns)  # noqa: PTH118
    return found


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _written(name: str) -> Callable[[bytes, Path], str]:
    """Return what writes an input to a file and gives that to a command."""

    def act(data: bytes, directory: Path) -> str:
        path = directory / name
        path.write_bytes(data)
        return _commanded(path, data)

    return act


def _within(fixture: Path, file: str) -> Callable[[bytes, Path], str]:
    """
    Return what puts an input in place of one file of a model that is a directory, and gives that to
    a command.
    """

    def act(data: bytes, directory: Path) -> str:
        path = directory / fixture.name
        if not path.exists():
            shutil.copytree(fixture, path)
        (path / file).write_bytes(data)
        return _commanded(path, data)

    return act


def _metadata(data: bytes, directory: Path) -> str:
    return _written("keras_metadata.pb")(data, directory)


def _index(data: bytes, directory: Path) -> str:
    """Read a checkpoint with this index, whose shard lies beside it."""
    shard = directory / "weights.data-00000-of-00001"
    if not shard.exists():
        shard.write_bytes((FIXTURES / "tf2.3/weights_only.ckpt.data-00000-of-00001").read_bytes())
    path = directory / "weights.index"
    path.write_bytes(data)
    number = _checksum(data)
    if number % 4:
        return _read(path)
    return oracle.command(
        *(("inspect", path, "--format", "json") if number % 8 else ("audit", path, "--weights"))
    )


def _keras(data: bytes, directory: Path) -> str:
    path = directory / "model.keras"
    path.write_bytes(data)
    return _commanded(path, data) if _checksum(data) % 3 else _read(path)


def _h5(data: bytes, directory: Path) -> str:
    path = directory / "model.h5"
    path.write_bytes(data)
    number = _checksum(data)
    if number % 8:
        return _read(path)
    return oracle.command(
        *(
            ("audit", path, "--weights")
            if number % 16
            else ("migrate", path, "--to", "float16", "--preview")
        )
    )


# Configs, in the containers that they come in


_WHOLE: Final = (
    *(
        "tf2.3/rnn.h5",
        "tf2.3/wrappers.h5",
        "tf2.3/exp_mf16_fixed128.h5",
        "tf2.3/nested_models.h5",
        "tf2.9/adam_autowrap_mf16.h5",
        "tf2.4/tf_op_layers.h5",
    ),
    *(
        "tf2.15/mha_mixed.h5",
        "tf2.3/shared_layer.h5",
        "keras2.2.4/rnn.h5",
        "tf2.15/preprocessing.h5",
    ),
)
_ZIPPED: Final = (
    *(
        "keras3.6/global_mixed_float16.keras",
        "keras3.15/global_mixed_float16.keras",
        "keras3.6/preprocessing.keras",
        "tf2.15/sequential.keras",
    ),
    *(
        "keras3.15/keras_ops.keras",
        "keras3.15/mha_mixed.keras",
        "keras3.15/shared_layer.keras",
        "keras3.15/bidirectional_mixed.keras",
        "keras3.6/int8.keras",
    ),
)


def _config(data: bytes, directory: Path) -> str:
    """Run a command over a whole model with changed configs."""
    path = with_configs(data, directory)
    try:
        return _commanded(path, data, FIXTURES / _source(data))
    finally:
        path.unlink()


def _source(data: bytes) -> str:
    """Return the fixture that the first line names."""
    return next(
        (item for item in (*_WHOLE, *_ZIPPED) if data.startswith(item.encode() + b"\n")), _WHOLE[0]
    )


def with_configs(data: bytes, directory: Path) -> Path:
    """
    Write a whole model whose configs are these: a line with the fixture's name, then a line of JSON
    for each.
    """
    source, (_, *texts) = _source(data), data.split(b"\n")
    path = directory / Path(source).name
    if source in _WHOLE:
        path.write_bytes(_bytes_of(source))
        with h5py.File(path, "r+") as file:
            for attribute, text in zip(("model_config", "training_config"), texts, strict=False):
                file.attrs[attribute] = text.decode("utf-8", "replace").replace("\0", "0")
    else:
        with zipfile.ZipFile(FIXTURES / source) as archive, zipfile.ZipFile(path, "w") as made:
            for info in archive.infolist():
                replaced = {
                    b"config.json": texts[0] if texts else b"",
                    b"metadata.json": texts[1] if len(texts) > 1 else b"{}",
                }
                made.writestr(
                    info.filename, replaced.get(info.filename.encode(), archive.read(info))
                )
    return path


@cache
def _bytes_of(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def _config_seeds() -> list[bytes]:
    actual = []
    for name in _WHOLE:
        with h5py.File(FIXTURES / name) as file:
            texts = [
                file.attrs[key] for key in ("model_config", "training_config") if key in file.attrs
            ]
        actual.append(
            "\n".join(
                [name, *(text if isinstance(text, str) else text.decode() for text in texts)]
            ).encode()
        )
    for name in _ZIPPED:
        with zipfile.ZipFile(FIXTURES / name) as archive:
            texts = [
                json.dumps(json.loads(archive.read(member)))
                for member in ("config.json", "metadata.json")
            ]
        actual.append("\n".join([name, *texts]).encode())
    return actual


def _config_mutated(rng: Random, data: bytes) -> bytes:
    name, *texts = data.split(b"\n")
    if texts:
        index = 0 if rng.random() < 0.8 else rng.randrange(len(texts))
        texts[index] = trees.bytes_of(rng, texts[index]).replace(b"\n", b" ")
    return b"\n".join([name, *texts])


def _conversion(data: bytes, _directory: Path) -> str:
    """
    Plan a conversion of a whole model with changed configs, without writing it first, and now and
    then ask every rule about it.
    """
    sound, (_, *texts), number = _document(_source(data)), data.split(b"\n"), _checksum(data)
    try:
        held = {
            part: jsontext.parse(text)[0]
            for part, text in zip((sound.config_part, sound.training_part), texts, strict=False)
            if part is not None
        }
        loaded = reading.load_model(replace(sound, parts={**sound.parts, **held}))
        if number % 5 == 0:
            question = rules.AuditOptions(targets=(_pick(LOADERS, number // 5),))
            case = rules.RuleInput(model=loaded.model, document=loaded.document, loaded=loaded)
            return "findings" if list(rules.findings(case, question)) else "read"
        plan = conversion_plan.plan(
            loaded,
            Options(target=_pick(LOADERS, number // 5), allow_weight_rewrite=number % 2 == 0),
            None,
        )
    except jsontext.JsonError as error:
        return error.code
    except ModelFileError as error:
        return error.code
    return plan.refusals[0].code if plan.refusals else "read"


@cache
def _document(name: str) -> Document:
    return format_detection.document(FIXTURES / name, name)


# What is the user's own


def _settings(data: bytes, directory: Path) -> str:
    (directory / "policytool.toml").write_bytes(data)
    model = directory / "model.json"  # a copy, because settings may say fix or in-place
    model.write_bytes(_bytes_of("tf2.3/global_mixed_float16.json"))
    command = _pick(
        (
            ("inspect",),
            ("audit",),
            ("migrate", "--preview"),
            ("inspect", "--show-settings"),
            ("audit", "--show-settings"),
        ),
        _checksum(data),
    )
    os.chdir(directory)
    try:
        return oracle.command(
            *command, model, "--config", directory / "policytool.toml", usage=True
        )
    finally:
        for path in directory.iterdir():
            _remove(path)


def _found_settings(data: bytes, directory: Path) -> str:
    """Run a command in a directory with a settings file that nobody chose."""
    (directory / "policytool.toml").write_bytes(data)
    number = _checksum(data)
    model = found_settings.write_model(directory / "model.json", _pick((3, 60, 2_000), number))
    command = _pick((("inspect",), ("audit",), ("migrate", "--preview")), number // 3)
    os.chdir(directory)
    try:
        return oracle.command(*command, model, usage=True)
    finally:
        for path in directory.iterdir():
            _remove(path)


def _found_seeds() -> list[bytes]:
    return [found_settings.settings(Random(seed)) for seed in range(20)]


def _found_setting(rng: Random, _data: bytes) -> bytes:
    return found_settings.settings(rng)


_SETTINGS: Final = [
    *(
        'format = "json"',
        "verbose = true",
        "jobs = 1",
        'layer = "mlp/.*"',
        'only = "mixed"',
        "depth = 2",
    ),
    *(
        'target = ["keras3"]',
        'select = ["PT1", "PT302"]',
        'ignore = ["ALL"]',
        'fail-on = "never"',
        "weights = true",
        'device = "gpu"',
        'to = "float32"',
    ),
    *(
        'set = ["a=float32"]',
        'keep = ["loss-scale"]',
        'outputs = "follow"',
        'optimizer = "keep"',
        'baseline = "b.json"',
        'output = "x"',
        'plan = "p.json"',
    ),
    *(
        'per-file-ignores = {"*.h5" = ["PT1"]}',
        'suppress = [{rule = "PT1", path = "a", reason = "b"}]',
        'format = ["json=x.json"]',
        "skip-unrecognized = true",
    ),
    *(
        'suppressions = [{rules = ["PT1"], paths = ["a"], reason = "b", until = 2020-01-01}]',
        "in-place = true",
    ),
    *(
        'existing = "replace"',
        "backup = false",
        "preview = true",
        "check = true",
        'write-baseline = "b.json"',
        "fix = true",
        "diff = true",
        "variables = true",
    ),
]


def _baseline(data: bytes, directory: Path) -> str:
    path = directory / "baseline.json"
    path.write_bytes(data)
    return oracle.command(
        "audit",
        FIXTURES / "tf2.3/exp_mf16_fixed128.h5",
        "--baseline",
        path,
        "--target",
        "keras3",
        usage=True,
    )


def _baseline_seeds() -> list[bytes]:
    finding = {"path": "m.h5", "rule": "PT101", "layer": "mlp", "fingerprint": "0" * 32}
    signature = {
        "path": "m",
        "name": "serve",
        "inputs": {"x": "float32"},
        "outputs": {"y": "float32"},
        "compute_dtypes": ["float32"],
    }
    return [json.dumps({"version": 1, "findings": [finding], "signatures": [signature]}).encode()]


def _plan(data: bytes, directory: Path) -> str:
    path = directory / "plan.json"
    path.write_bytes(data)
    return oracle.command(
        "migrate",
        FIXTURES / "tf2.3/exp_mf16_fixed128.h5",
        "--plan",
        path,
        "--preview",
        "--format",
        "json",
        usage=True,
    )


def _plan_seeds() -> list[bytes]:
    model = FIXTURES / "tf2.3/exp_mf16_fixed128.h5"
    return [
        run("migrate", model, "--to", to, "--preview", "--format", "json").out.encode()
        for to in ("float32", "float16", "mixed_bfloat16")
    ]


# Seeds


def _files(pattern: str, most: int = 60, largest: int = _LARGEST) -> list[bytes]:
    """Return the smallest fixtures of a kind, of every release alike."""
    actual: Mapping[Path, list[bytes]] = {}
    for path in sorted(FIXTURES.glob(pattern), key=lambda path: (path.stat().st_size, path)):
        if path.stat().st_size <= largest and path.name not in {"truth.json", "policies.json"}:
            actual = {**actual, path.parent: [*actual.get(path.parent, []), path.read_bytes()]}
    per_release = max(1, most // max(1, len(actual)))
    return [data for files in actual.values() for data in files[:per_release]][:most]


def _architectures() -> list[bytes]:
    return _files("*/*.json", 120)


def _yamls() -> list[bytes]:
    return _files("*/*.yaml", 20)


def _saved_models() -> list[bytes]:
    return _files("*/*/saved_model.pb", 12)


def _metadatas() -> list[bytes]:
    return _files("*/*/keras_metadata.pb", 12)


def _indices() -> list[bytes]:
    return _files("**/*.index", 12)


def _archives() -> list[bytes]:
    return _files("*/*.keras", 12)


def _hdf5_files() -> list[bytes]:
    return _files("*/*.h5", 24, 40_000)


def _object_graphs() -> list[bytes]:
    from pathlib import Path

    from policytool.formats.checkpoint.bundle import OBJECT_GRAPH_KEY, open_bundle

    actual = []
    for path in ("tf2.3/weights_only.ckpt", "checkpoints/training", "checkpoints/listed"):
        bundle = open_bundle(Path(FIXTURES, path))
        if OBJECT_GRAPH_KEY in bundle.entries:
            actual.append(bundle.strings(bundle.entries[OBJECT_GRAPH_KEY])[0])
    return actual


def _policies() -> list[bytes]:
    return [json.dumps(policy).encode() for policy in words.POLICIES]


def _topologies() -> list[bytes]:
    return _files("tfjs*/*/model.json", 12)


def _archive_mutated(rng: Random, data: bytes) -> bytes:
    if rng.random() < 0.3:
        return containers.damaged(rng, data)
    return containers.archive(rng, _members(data))


@cache
def _members(data: bytes) -> dict[str, bytes]:
    import io

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()[:8]}
    except (
        zipfile.BadZipFile,
        ValueError,
        RuntimeError,
        NotImplementedError,
        OSError,
        EOFError,
        zlib.error,
    ):
        return {}


def _either(
    one: Callable[[Random, bytes], bytes], share: float = 0.85
) -> Callable[[Random, bytes], bytes]:
    """Return a change that knows the structure, and now and then one that does not."""

    def change(rng: Random, data: bytes) -> bytes:
        return one(rng, data) if rng.random() < share else containers.damaged(rng, data)

    return change


def _toml(rng: Random, _data: bytes) -> bytes:
    return containers.toml(rng, _SETTINGS)


def _h5_mutated(rng: Random, data: bytes) -> bytes:
    return containers.shifted(rng, data) if rng.random() < 0.3 else containers.damaged(rng, data)


_TREES: Final = _either(trees.bytes_of)
_MESSAGES: Final = _either(containers.message)


def _nests() -> list[bytes]:
    return [nests.config(Random(seed)) for seed in range(20)]


def _nest(rng: Random, _data: bytes) -> bytes:
    return nests.config(rng)


def _link_graphs() -> list[bytes]:
    return [link_graphs.hdf5(Random(seed)) for seed in range(20)]


def _link_graph(rng: Random, _data: bytes) -> bytes:
    return link_graphs.hdf5(rng)


TARGETS: Final = {
    target.name: target
    for target in (
        Target(name="json", seeds=_architectures, run=_json, mutate=_TREES),
        Target(name="yaml", seeds=_yamls, run=_yaml, mutate=_either(containers.yaml)),
        Target(name="wire", seeds=_metadatas, run=_wire, mutate=_MESSAGES),
        Target(name="objects", seeds=_object_graphs, run=_objects_of, mutate=_MESSAGES),
        Target(name="policy", seeds=_policies, run=_policy, mutate=_TREES),
        Target(name="conversion", seeds=_config_seeds, run=_conversion, mutate=_config_mutated),
        Target(name="index", seeds=_indices, run=_index, mutate=containers.table),
        Target(
            name="architecture", seeds=_architectures, run=_written("model.json"), mutate=_TREES
        ),
        Target(
            name="yaml-architecture",
            seeds=_yamls,
            run=_written("model.yaml"),
            mutate=_either(containers.yaml),
        ),
        Target(name="tfjs", seeds=_topologies, run=_written("model.json"), mutate=_TREES),
        Target(name="metadata", seeds=_metadatas, run=_metadata, mutate=_MESSAGES),
        Target(
            name="savedmodel",
            seeds=_saved_models,
            run=_within(FIXTURES / "tf2.9/default_float32", "saved_model.pb"),
            mutate=_MESSAGES,
        ),
        Target(name="keras", seeds=_archives, run=_keras, mutate=_archive_mutated, forked=True),
        Target(name="config", seeds=_config_seeds, run=_config, mutate=_config_mutated),
        Target(
            name="found-settings", seeds=_found_seeds, run=_found_settings, mutate=_found_setting
        ),
        Target(name="nests", seeds=_nests, run=_written("model.json"), mutate=_nest),
        Target(
            name="links",
            seeds=_link_graphs,
            run=_written("model.h5"),
            mutate=_link_graph,
            forked=True,
        ),
        Target(name="hdf5", seeds=_hdf5_files, run=_h5, mutate=_h5_mutated, forked=True),
        Target(name="settings", seeds=lambda: [b""], run=_settings, mutate=_toml),
        Target(name="baseline", seeds=_baseline_seeds, run=_baseline, mutate=_TREES),
        Target(name="plan", seeds=_plan_seeds, run=_plan, mutate=_TREES),
    )
}
"""By name; what costs least comes first."""


def is_bound(outcome: str) -> bool:
    """Return whether an input was refused because it is beyond a bound."""
    return outcome.endswith("-limit")
