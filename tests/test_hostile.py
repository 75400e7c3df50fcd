"""
Every way in which a file can be wrong has its own code and its own sentence, and none of them ends
in a traceback.

Each case is built here, wrong in one way. What is odd but readable is at the end: it is read, and
said.
"""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

import policytool
from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.text import protobuf_messages
from tests.conftest import MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL, Ended, run, run_process
from tests.helpers import small_models
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import (
    Object,
    dense,
    h5_model,
    instance,
    keras_members,
    keras_object,
    keras_zip,
    saved_model,
    sequential,
    small_saved_model,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LFS: Final = (
    b"version https://git-lfs.github.com/spec/v1\noid "
    b"sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
)
HTML: Final = b"\n<!DOCTYPE html>\n<html><title>Sign in</title></html>"


def _file(name: str, data: bytes) -> Callable[[Path], Path]:
    def build(directory: Path) -> Path:
        path = directory / name
        path.write_bytes(data)
        return path

    return build


def _part_of(source: Path, part: float) -> Callable[[Path], Path]:
    data = source.read_bytes()
    return _file(f"part{source.suffix}", data[: int(len(data) * part)])


def _config(config: object) -> Callable[[Path], Path]:
    return lambda directory: h5_model(directory / "config.h5", config)


def _attribute(name: str, value: object) -> Callable[[Path], Path]:
    def build(directory: Path) -> Path:
        path = h5_model(directory / "attribute.h5", sequential())
        with h5py.File(path, "a") as file:
            file.attrs[name] = value
        return path

    return build


def _h5_without_keras(directory: Path) -> Path:
    path = directory / "data.h5"
    with h5py.File(path, "w") as file:
        file["images"] = np.zeros((2, 2))
    return path


def _members(**changed: bytes | None) -> Callable[[Path], Path]:
    """
    Return a builder of an archive with some members changed, or left out for None; ``_`` stands for
    a dot.
    """
    members = keras_members()
    for name, data in changed.items():
        key = name.replace("__", "/").replace("_", ".")
        members.pop(key, None)
        if data is not None:
            members[key] = data
    return lambda directory: keras_zip(directory / "changed.keras", members)


def _only(*names: str) -> Callable[[Path], Path]:
    return lambda directory: keras_zip(directory / "other.keras", dict.fromkeys(names, b"x"))


def _bomb(member: str, data: bytes) -> Callable[[Path], Path]:
    return lambda directory: keras_zip(
        directory / "bomb.keras",
        {**keras_members(), member: data},
        compression=zipfile.ZIP_DEFLATED,
    )


def _encrypted(member: str) -> Callable[[Path], Path]:
    def build(directory: Path) -> Path:
        path = keras_zip(directory / "encrypted.keras")
        raw = bytearray(path.read_bytes())
        with zipfile.ZipFile(path) as archive:
            raw[archive.getinfo(member).header_offset + 6] |= 1
        central = raw.find(b"PK\x01\x02")
        while raw[central + 46 : central + 46 + len(member)] != member.encode():
            central = raw.find(b"PK\x01\x02", central + 1)
        raw[central + 8] |= 1
        path.write_bytes(raw)
        return path

    return build


def _unknown_compression(directory: Path) -> Path:
    path = keras_zip(directory / "method.keras")
    raw = bytearray(path.read_bytes())
    struct.pack_into("<H", raw, raw.find(b"PK\x03\x04") + 8, 99)
    struct.pack_into("<H", raw, raw.find(b"PK\x01\x02") + 10, 99)
    path.write_bytes(raw)
    return path


def _saved(file: str, data: bytes) -> Callable[[Path], Path]:
    """Return a builder of a SavedModel with one file replaced."""

    def build(directory: Path) -> Path:
        path = small_saved_model(directory / "saved", separate=True)
        (path / file).write_bytes(data)
        return path

    return build


def _half_saved(file: str) -> Callable[[Path], Path]:
    data = (MIXED_SAVEDMODEL / file).read_bytes()
    return _saved(file, data[: len(data) // 2])


def _objects(*objects: Object) -> Callable[[Path], Path]:
    return lambda directory: saved_model(directory / "saved", objects)


def _text_form(directory: Path) -> Path:
    path = directory / "saved"
    path.mkdir()
    (path / "saved_model.pbtxt").write_text("saved_model_schema_version: 1\n", encoding="utf-8")
    return path


def _directory_in_place_of_file(directory: Path) -> Path:
    path = directory / "saved"
    (path / "saved_model.pb").mkdir(parents=True)
    return path


def _chain(length: int) -> tuple[Object, ...]:
    return tuple(
        keras_object(f"layer{number}", "Dense", children=[("inner", number + 1)])
        for number in range(length)
    )


DEEP: Final = (
    b'{"class_name": "Sequential", "config": '
    + b"[" * (limits.JSON_DEPTH.value + 1)
    + b"]" * (limits.JSON_DEPTH.value + 1)
    + b"}"
)
VERY_DEEP: Final = (
    b'{"class_name": "Sequential", "config": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
)

_BY_CODE: Final[dict[str, dict[str, tuple[Callable[[Path], Path], str]]]] = {
    "empty": {
        "empty": (_file("model.h5", b""), "is empty"),
        "empty graph": (_saved("saved_model.pb", b""), "saved_model.pb is empty"),
        "empty metadata": (_saved("keras_metadata.pb", b""), "keras_metadata.pb is empty"),
    },
    "lfs-pointer": {
        "lfs pointer": (_file("model.h5", LFS), "git lfs pull"),
        "graph is an lfs pointer": (
            _saved("saved_model.pb", LFS),
            "saved_model.pb is a git-lfs pointer",
        ),
        "metadata is an lfs pointer": (
            _saved("keras_metadata.pb", LFS),
            "keras_metadata.pb is a git-lfs pointer",
        ),
    },
    "html-page": {"html page": (_file("model.h5", HTML), "is an HTML page")},
    "foreign": {
        "torch pickle": (
            _file("model.h5", b"\x80\x02\x8a\nl\xfc\x9c"),
            "a Python pickle (PyTorch or scikit-learn)",
        ),
        "pickle": (_file("model.pkl", b"\x80\x04\x95"), "is a Python pickle;"),
        "tflite": (_file("model.tflite", b"\x1c\0\0\0TFL3\0\0"), "a TensorFlow Lite model"),
        "gzip": (_file("model.h5.gz", b"\x1f\x8b\x08\0"), "a gzip archive"),
        "tar": (_file("model.tar", b"model/".ljust(257, b"\0") + b"ustar\x0000"), "a tar archive"),
        "numpy": (_file("model.npy", b"\x93NUMPY\x01\0"), "a NumPy array"),
        "safetensors": (
            _file("model.safetensors", b'\x10\0\0\0\0\0\0\0{"__metadata__"'),
            "a safetensors file",
        ),
        "unknown": (_file("model.h5", b"hello"), "an unrecognized file format"),
        "directory in place of the graph": (
            _directory_in_place_of_file,
            "is a directory, but should be a file",
        ),
    },
    "not-found": {
        "missing": (lambda directory: directory / "gone.h5", "does not exist"),
        "missing directory": (lambda directory: directory / "gone" / "model.h5", "does not exist"),
    },
    "truncated": {
        "truncated h5": (_part_of(MIXED_H5, 0.5), "is truncated: it has"),
        "truncated zip": (_part_of(MIXED_KERAS, 0.5), "is a truncated or damaged zip archive"),
        "zip signature alone": (
            _file("model.keras", b"PK\x03\x04"),
            "is a truncated or damaged zip archive",
        ),
        "truncated weights": (
            _members(model_weights_h5=small_models.weights_bytes()[:1000]),
            "model.weights.h5 is truncated: it has 1000 bytes",
        ),
        "truncated graph": (
            _half_saved("saved_model.pb"),
            "saved_model.pb is truncated or is not the protobuf message",
        ),
        "truncated metadata": (
            _half_saved("keras_metadata.pb"),
            "keras_metadata.pb is truncated or is not the protobuf message",
        ),
    },
    "damaged-h5": {
        "h5 signature alone": (_file("model.h5", b"\x89HDF\r\n\x1a\n"), "cannot be opened as HDF5")
    },
    "h5-not-keras": {
        "h5 without keras": (_h5_without_keras, "is HDF5, but not a Keras file"),
        "h5 config is a number": (
            _attribute("model_config", 5),
            "attribute model_config should be text, but",
        ),
        "h5 config is an array": (
            _attribute("model_config", np.array([b"a", b"b"])),
            "attribute model_config should be text",
        ),
        "h5 config is null": (
            _attribute("model_config", h5py.Empty("S1")),
            "attribute model_config should be text",
        ),
        "h5 version is a number": (
            _attribute("keras_version", 2.4),
            "attribute keras_version should be text, but",
        ),
    },
    "invalid-json": {
        "h5 config is not UTF-8": (
            _attribute("model_config", np.bytes_(b'"\xff\xfe"')),
            "attribute model_config is not UTF-8",
        ),
        "h5 config is no JSON": (
            _config("{'class_name': 'Sequential'}"),
            "model_config is not valid JSON",
        ),
        "h5 config is empty": (_config(""), "model_config is not valid JSON: Expecting value"),
        "h5 training config is no JSON": (
            _attribute("training_config", "{"),
            "training_config is not valid JSON",
        ),
        "config is no JSON": (_members(config_json=b"{"), "config.json is not valid JSON"),
        "config is not UTF-8": (_members(config_json=b'{"a": "\xff"}'), "config.json is not UTF-8"),
        "metadata is no JSON": (_members(metadata_json=b"{"), "metadata.json is not valid JSON"),
        "json is no JSON": (_file("model.json", b'{"class_name": '), "the file is not valid JSON"),
        "json with a huge number": (
            _file("model.json", b'{"class_name": "Sequential", "config": %b}' % (b"9" * 5000)),
            "contains an integer with more than 4300 digits",
        ),
        "node metadata is no JSON": (
            _objects(
                keras_object("a", "Dense"), Object(identifier="_tf_keras_layer", metadata=b"{")
            ),
            "saved_model.pb#1 is not",
        ),
    },
    "config-not-keras": {
        "h5 config is a list": (_config([1, 2]), "model_config contains no serialized model"),
        "h5 config is a JSON number": (_config("5"), "model_config contains no serialized model"),
        "h5 config is a JSON string": (
            _config('"Sequential"'),
            "model_config contains no serialized model",
        ),
        "h5 config is null JSON": (_config("null"), "model_config contains no serialized model"),
        "h5 config without a config": (
            _config({"class_name": "Sequential"}),
            "model_config contains no serialized model",
        ),
        "config is not a model": (
            _members(config_json=b"[]"),
            "config.json contains no serialized model",
        ),
    },
    "json-limit": {
        "h5 config nests deeply": (
            _config(DEEP.decode()),
            "model_config nests JSON to a depth of at least 201 levels",
        ),
        "h5 with 500 nested models": (
            _config(small_models.nested(500)),
            "nests JSON to a depth of at least",
        ),
        "config nests deeply": (
            _members(config_json=DEEP),
            "config.json nests JSON to a depth of at least",
        ),
        "json nests deeply": (
            _file("model.json", DEEP),
            "the file nests JSON to a depth of at least 201 levels",
        ),
        "json nests beyond the interpreter": (
            _file("model.json", VERY_DEEP),
            "the file nests JSON to a depth of at least 201 levels",
        ),
    },
    "no-config": {
        "zip without config": (
            _only("readme.txt"),
            "is a zip archive without config.json (it contains readme.txt)",
        ),
        "empty zip": (
            lambda directory: keras_zip(directory / "empty.keras", {}),
            "it contains nothing",
        ),
        "torch zip": (_only("archive/data.pkl"), "is a PyTorch archive"),
        "office zip": (_only("[Content_Types].xml"), "is an Office document"),
    },
    "zip-limit": {
        "config bomb": (_bomb("config.json", b" " * 10**6), "config.json that would expand from"),
        "weights bomb": (
            _bomb("model.weights.h5", bytes(10**7)),
            "model.weights.h5 that would expand from",
        ),
    },
    "zip-encrypted": {
        "encrypted config": (_encrypted("config.json"), "contains an encrypted config.json"),
        "encrypted weights": (
            _encrypted("model.weights.h5"),
            "contains an encrypted model.weights.h5",
        ),
    },
    "zip-unsupported": {"unknown compression": (_unknown_compression, "cannot be read: ")},
    "json-not-keras": {
        "json is not keras": (
            _file("model.json", b'{"name": "package", "version": 1}'),
            "not a Keras architecture",
        ),
        "json without a config": (
            _file("model.json", b'{"class_name": "Sequential"}'),
            "not a Keras architecture",
        ),
    },
    "mangled": {
        "mangled graph": (
            _saved(
                "saved_model.pb",
                (MIXED_SAVEDMODEL / "saved_model.pb")
                .read_bytes()
                .decode("utf-8", "replace")
                .encode(),
            ),
            "saved_model.pb was damaged by a text tool",
        ),
    },
    "savedmodel-empty": {
        "no graph in it": (_saved("saved_model.pb", b"\x08\x01"), "contains no graph")
    },
    "savedmodel-text": {"text form": (_text_form, "protobuf text format")},
    "layer-limit": {
        "layers nested 500 deep": (
            _objects(*_chain(500)),
            "nests layers to a depth of at least 61 levels",
        ),
    },
}

REFUSED: Final = {
    name: (build, code, words)
    for code, cases in _BY_CODE.items()
    for name, (build, words) in cases.items()
}


def refused(path: Path | str) -> dict[str, Any]:
    """Return the one failure that inspecting ``path`` gives, in both reports."""
    table, report = run("inspect", path), run("inspect", path, "--format", "json")
    assert (table.code, report.code, table.out) == (3, 3, ""), f"{table}\n{report}"
    failures = report.json["failures"]
    assert len(failures) == 1
    failure: dict[str, Any] = failures[0]
    problem = re.split(r"; |\\", failure["message"].removeprefix("is "))[0]
    assert problem in table.err
    assert table.err.rstrip().endswith(f" [{failure['code']}]")
    return failure


@pytest.mark.parametrize("name", REFUSED)
def test_each_invalid_file_has_a_separate_error_message(name: str, tmp_path: Path) -> None:
    """
    Such a file ends with exit code 3, its code and a sentence with the problem. The Python
    functions raise the same error.
    """
    build, code, words = REFUSED[name]
    path = build(tmp_path)
    failure = refused(path)
    assert failure["code"] == code
    assert words in failure["message"]
    assert failure["path"] == path.as_posix()
    with pytest.raises(ModelFileError) as caught:
        policytool.inspect(path)
    assert (caught.value.path, caught.value.code, caught.value.message) == (
        failure["path"],
        code,
        failure["message"],
    )


def test_no_two_ways_of_being_wrong_share_code_and_words() -> None:
    """
    The table above really tells its cases apart: where the code is the same, the words differ by
    part or by kind.
    """
    actual = [
        (code, words)
        for _, code, words in REFUSED.values()
        if code not in {"config-not-keras", "not-found", "json-limit", "truncated", "no-config"}
    ]
    repeated = {item for item in actual if actual.count(item) > 1}
    assert repeated <= {
        ("h5-not-keras", "attribute model_config should be text"),
        ("json-not-keras", "not a Keras architecture"),
    }


@pytest.mark.parametrize("data", [b"", b"not HDF5 at all"], ids=["empty", "foreign"])
def test_weights_member_without_the_hdf5_signature_is_named(data: bytes, tmp_path: Path) -> None:
    """The message does not claim that the member begins like HDF5."""
    failure = refused(_members(model_weights_h5=data)(tmp_path))
    assert "model.weights.h5" in failure["message"]
    assert "begins like HDF5" not in failure["message"]


# Permissions


@pytest.fixture
def stranger() -> Iterator[Callable[[], None]]:
    """
    Return what makes this process a user without rights on root's files; for others, modes alone
    do.
    """
    for warm in (MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL):
        run("inspect", warm)  # a stranger may not be able to read the interpreter's own modules

    def become() -> None:
        if os.geteuid() == 0:
            os.seteuid(65534)

    yield become
    if os.getuid() == 0:
        os.seteuid(0)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Return a directory that any user may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(sys.platform == "win32", reason="modes are POSIX")
@pytest.mark.parametrize(
    "kind",
    ["h5", "keras", "graph", "inside a locked directory", "locked directory", "locked SavedModel"],
)
def test_file_without_read_permission_is_reported(
    kind: str, open_directory: Path, stranger: Callable[[], None]
) -> None:
    """The code is ``no-permission``, not that of a missing model or an internal error."""
    match kind:
        case "h5":
            path = locked = h5_model(open_directory / "a.h5", sequential())
        case "keras":
            path = locked = keras_zip(open_directory / "a.keras")
        case "graph":
            path = small_saved_model(open_directory / "a")
            locked = path / "saved_model.pb"
        case "locked SavedModel":
            path = locked = small_saved_model(open_directory / "a")
        case _:
            locked = open_directory / "locked"
            locked.mkdir()
            path = h5_model(locked / "a.h5", sequential())
            path = path if kind.startswith("inside") else locked
    locked.chmod(0)
    stranger()
    ended = run("inspect", path)
    if os.getuid() != 0:
        locked.chmod(0o700)
    assert ended.code == 3
    assert "not readable by the current user" in ended.err
    assert "[no-permission]" in ended.err


# HDF5 that leads elsewhere


def test_links_and_outside_storage_are_reported_and_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Soft and external links, external storage and virtual datasets are observations; their targets'
    values show nowhere.
    """
    monkeypatch.chdir(tmp_path)
    with h5py.File("canary.h5", "w") as canary:
        canary["x"] = np.zeros(77777, dtype="float16")
    path = h5_model(tmp_path / "links.h5", sequential())
    with h5py.File(path, "a") as file:
        layer = file["model_weights/dense_a"]
        layer["soft"] = h5py.SoftLink("/nowhere")
        layer["outside"] = h5py.ExternalLink("canary.h5", "/x")
        layer.create_dataset("elsewhere", (4,), "float32", external=[("canary.bin", 0, 16)])
        layout = h5py.VirtualLayout((4,), "float32")
        layout[:] = h5py.VirtualSource("canary.h5", "x", (4,))
        layer.create_virtual_dataset("virtual", layout)
    model = run("inspect", path, "--format", "json").json["models"][0]
    actual = {item["code"]: item for item in model["observations"]}
    assert set(actual) == {
        "soft-link",
        "external-link",
        "external-storage",
        "virtual-dataset",
        "unlisted-variables",
    }
    assert actual["soft-link"]["where"] == "model_weights/dense_a/soft"
    assert "canary.h5:/x" in actual["external-link"]["message"]
    assert "canary.bin" in actual["external-storage"]["message"]
    assert "77777" not in json.dumps(model)
    assert "float16" not in json.dumps(model)


@THOROUGH
@pytest.mark.skipif(sys.platform == "win32", reason="named pipes are POSIX")
def test_link_targets_are_never_opened(tmp_path: Path) -> None:
    """A named pipe as target of every link would block whoever opens it; inspecting does not."""
    os.mkfifo(tmp_path / "pipe")
    path = h5_model(tmp_path / "links.h5", sequential())
    with h5py.File(path, "a") as file:
        file["model_weights"]["outside"] = h5py.ExternalLink(str(tmp_path / "pipe"), "/")
        file.create_dataset(
            "model_weights/dense_a/elsewhere",
            (4,),
            "float32",
            external=[(str(tmp_path / "pipe"), 0, 16)],
        )
    ended = run_process("inspect", path)
    assert ended.code == 0
    assert ended.out.count("pipe") == 2


def test_groups_that_hold_each_other_end(tmp_path: Path) -> None:
    """A cycle of hard links is cut at the depth bound."""
    path = h5_model(tmp_path / "cycle.h5", sequential())
    with h5py.File(path, "a") as file:
        file["model_weights/dense_a/back"] = file["model_weights"]
    assert refused(path)["code"] == "h5-limit"


# Odd but readable


def test_weights_files_are_reported_without_a_policy(tmp_path: Path) -> None:
    """
    Weights without a model, in the legacy layout and as object paths, are reported with their
    stored dtypes.
    """
    (tmp_path / "objects.weights.h5").write_bytes(small_models.weights_bytes())
    with h5py.File(tmp_path / "legacy.h5", "w") as file:
        file.attrs["layer_names"] = np.array([b"dense_a"])
        file["dense_a/dense_a/kernel:0"] = np.zeros((6, 2), dtype="float16")
    for name, dtype in (("objects.weights.h5", "float32"), ("legacy.h5", "float16")):
        ended = run("inspect", tmp_path / name, "--format", "json")
        assert ended.code == 0
        model = ended.json["models"][0]
        assert model["format"] == "weights"
        assert {
            variable["dtype"] for layer in model["layers"] for variable in layer["variables"]
        } == {dtype}
        assert [item["code"] for item in model["observations"]] == ["no-policy"]
        assert (
            f"a weights file contains no policies; its variables are stored as {dtype}"
            in model["observations"][0]["message"]
        )
        assert all(
            layer["policy"] is None and layer["source"] == "unknown" for layer in model["layers"]
        )


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_compressed_weights_are_read(compression: int, tmp_path: Path) -> None:
    """An archive that someone packed again, compressed, says the same as the stored one."""
    members = keras_members()
    reports = [
        policytool.inspect(keras_zip(tmp_path / f"{how}.keras", members, compression=how))
        for how in (zipfile.ZIP_STORED, compression)
    ]
    assert reports[0].layers == reports[1].layers
    assert reports[1].summary.parameters == 14


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_duplicate_member_is_reported_and_the_last_counts(tmp_path: Path) -> None:
    """Python, and therefore Keras, reads the last member of a name."""
    first, last = (
        keras_members(sequential(dense(dtype="float16"))),
        keras_members(sequential(dense(dtype="float64"))),
    )
    model = policytool.inspect(
        keras_zip(tmp_path / "twice.keras", [*first.items(), ("config.json", last["config.json"])])
    )
    assert model.layers[1].policy == "float64"
    assert [item.code for item in model.observations] == ["duplicate-member"]


@pytest.mark.parametrize(
    "name",
    [
        "../evil.txt",
        "/etc/evil.txt",
        "assets/../../evil.txt",
        "assets\\..\\..\\evil.txt",
        "\\evil.txt",
    ],
)
def test_member_that_points_out_of_the_archive_is_reported(name: str, tmp_path: Path) -> None:
    """Nothing is unpacked, and a note warns anyone who would unpack the archive."""
    before = sorted(tmp_path.parent.iterdir())
    path = keras_zip(tmp_path / "escape.keras", {**keras_members(), name: b"x"})
    model = policytool.inspect(path)
    assert [(item.code, item.where) for item in model.observations] == [("escaping-member", name)]
    assert sorted(tmp_path.parent.iterdir()) == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["h5", "keras", "json"])
def test_duplicate_key_is_reported_and_the_last_counts(kind: str, tmp_path: Path) -> None:
    """Duplicate JSON keys, which tools read differently, are observations in every format."""
    text = json.dumps(sequential()).replace(
        '"dtype": "float32"', '"dtype": "float16", "dtype": "float64"'
    )
    path = tmp_path / f"twice.{kind}"
    match kind:
        case "h5":
            h5_model(path, text)
        case "keras":
            keras_zip(path, keras_members(text.encode()))
        case _:
            path.write_text(text, encoding="utf-8")
    model = policytool.inspect(path)
    assert model.layers[1].policy == "float64"
    duplicates = [item for item in model.observations if item.code == "duplicate-key"]
    assert len(duplicates) == 1
    assert "'dtype'" in duplicates[0].message


@pytest.mark.parametrize(
    ("number", "text"),
    [("NaN", "NaN"), ("Infinity", "Infinity"), ("-Infinity", "-Infinity"), ("1e999", "Infinity")],
)
def test_numbers_that_json_lacks_are_strings_in_the_report(
    number: str, text: str, tmp_path: Path
) -> None:
    """A loss scale that is no finite number makes a report that strict JSON parsers read."""
    config = json.dumps(sequential(dense(dtype=small_models.LOSS_SCALED))).replace("128.0", number)
    ended = run("inspect", h5_model(tmp_path / "scale.h5", config), "--format", "json")
    assert ended.code == 0
    report = json.loads(
        ended.out, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON")
    )
    assert report["models"][0]["layers"][1]["loss_scale"] == {"kind": "fixed", "value": text}


@pytest.mark.parametrize("steps", ["NaN", "Infinity", "1e400"])
def test_growth_steps_that_are_no_number_are_no_bug_of_ours(steps: str, tmp_path: Path) -> None:
    """A dynamic loss scale whose steps are no integer is an observation or a refusal."""
    scale = instance(
        "DynamicLossScale", initial_loss_scale=2.0, increment_period="STEPS", multiplier=2.0
    )
    policy = {"class_name": "Policy", "config": {"name": "mixed_float16", "loss_scale": scale}}
    config = json.dumps(sequential(dense(dtype=policy))).replace('"STEPS"', steps)
    assert run("inspect", h5_model(tmp_path / "scale.h5", config)).code in {0, 3}


@pytest.mark.parametrize("steps", ["NaN", "Infinity"])
def test_optimizer_steps_that_are_no_number_are_no_bug_of_ours(steps: str, tmp_path: Path) -> None:
    """The same holds for the optimizer's loss scale."""
    optimizer = instance(
        "LossScaleOptimizer",
        inner_optimizer={"class_name": "Adam", "config": {}},
        dynamic_growth_steps="STEPS",
    )
    path = h5_model(tmp_path / "scale.h5", sequential())
    with h5py.File(path, "a") as file:
        file.attrs["training_config"] = json.dumps({"optimizer_config": optimizer}).replace(
            '"STEPS"', steps
        )
    assert run("inspect", path).code in {0, 3}


CONTROLS: Final = "evil\x1b[2J\x1b]0;title\x07\r\n\x9b31m\x7f"
BIDI: Final = "a\u202eb\u2066c\u2028d"


@pytest.mark.parametrize("name", [CONTROLS, BIDI], ids=["control", "bidirectional"])
@pytest.mark.parametrize(
    "place", ["layer", "class", "registered", "version", "observation", "signature"]
)
def test_text_from_files_cannot_steer_the_terminal(name: str, place: str, tmp_path: Path) -> None:
    """
    No control character and no invisible direction mark of a file reaches the table; what is
    printed is printable.
    """
    match place:
        case "layer":
            path = h5_model(tmp_path / "a.h5", sequential(dense(name)))
        case "class":
            path = h5_model(tmp_path / "a.h5", sequential({**dense(), "class_name": name}))
        case "registered":
            path = h5_model(
                tmp_path / "a.h5",
                sequential(dense(dtype={"class_name": name, "config": {"name": name}})),
            )
        case "version":
            path = h5_model(tmp_path / "a.h5", sequential(), keras_version=f"2.4.0{name}")
        case "observation":
            path = keras_zip(tmp_path / "a.keras", {**keras_members(), f"../{name}": b"x"})
        case _:
            path = small_saved_model(tmp_path / "a")
            saved = protobuf_messages.parse("SavedModel", (path / "saved_model.pb").read_bytes())
            saved.meta_graphs[0].signatures.add(key=name.encode()).value.inputs.add(
                key=name.encode()
            )
            (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    ended = run("inspect", path, "--variables")
    assert ended.code == 0
    assert_printable(ended)


def test_text_from_paths_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """The same holds for names of files, those that exist and those that do not."""
    path = h5_model(tmp_path / "evil\x1b2J\n\u202e.h5", sequential())
    assert_printable(run("inspect", path))
    assert_printable(run("inspect", tmp_path / "gone\x1b2J\n\u202e.h5"))


def assert_printable(ended: Ended) -> None:
    """Fail where a line holds a character that is not for the eye."""
    for line in (ended.out + ended.err).split("\n"):
        assert line.isprintable(), ascii(line)


@THOROUGH
@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_lone_surrogates_are_written_somehow(form: str, encoding: str, tmp_path: Path) -> None:
    """A name with half a surrogate pair, which JSON can hold and UTF-8 cannot, ends in a report."""
    path = h5_model(tmp_path / "surrogate.h5", sequential(dense("half\ud800")))
    ended = run_process(
        "inspect", path, "--format", form, environment={"PYTHONIOENCODING": encoding}
    )
    assert (ended.code, ended.err) == (0, "")
    if form == "json":
        assert ended.json["models"][0]["layers"][1]["name"].startswith("half")


@THOROUGH
@pytest.mark.skipif(
    sys.platform in {"win32", "darwin"},
    reason="only POSIX file systems hold names that are not UTF-8",
)
@pytest.mark.parametrize("form", ["table", "json"])
def test_path_that_is_not_utf8_is_written_somehow(form: str, tmp_path: Path) -> None:
    """A file whose name is not UTF-8 is reported like any other."""
    path = h5_model(tmp_path / "plain.h5", sequential()).rename(
        tmp_path / os.fsdecode(b"latin-\xe4.h5")
    )
    ended = run_process("inspect", path, "--format", form)
    assert (ended.code, ended.err) == (0, "")


def test_layers_with_equal_names_are_listed_once_each(tmp_path: Path) -> None:
    """Names that repeat from parent to child, and among siblings, neither loop nor lose a layer."""
    inner = sequential(dense("mlp"), dense("mlp"), name="mlp")
    inner["config"]["trainable"] = True
    model = policytool.inspect(
        h5_model(tmp_path / "names.h5", sequential(inner, inner, name="mlp"))
    )
    assert [layer.path for layer in model.layers].count("mlp/mlp/mlp") == 4
    assert len(model.layers) == 7
    assert model.summary.parameters == 14


@pytest.mark.parametrize(
    "odd",
    [
        {"class_name": 5, "config": {}},
        {"class_name": "Dense"},
        {"class_name": "Dense", "config": None},
        {"class_name": "Dense", "config": {"name": 5, "trainable": True}},
        {"class_name": "Dense", "config": {"name": "", "trainable": True, "dtype": 16}},
        instance("Dense", name="d", trainable=True, dtype={"class_name": "Policy"}),
        instance(
            "Dense",
            name="d",
            trainable=True,
            dtype={"class_name": "DTypePolicyMap", "config": {"policy_map": {"(": None}}},
        ),
        instance("Bidirectional", name="b", trainable=True, layer=5, backward_layer=[]),
        {"class_name": "Dense", "config": {"name": "a/b~c", "trainable": True}},
        None,
        5,
        [[[]]],
    ],
    ids=str,
)
def test_odd_entries_of_a_model_are_read_around(odd: object, tmp_path: Path) -> None:
    """An entry that is no proper layer never keeps the others from being reported."""
    config = sequential(dense("before"), dense("after"))
    config["config"]["layers"].insert(1, odd)
    ended = run("inspect", h5_model(tmp_path / "odd.h5", config), "--format", "json")
    assert ended.code == 0
    paths = [layer["path"] for layer in ended.json["models"][0]["layers"]]
    assert paths[:2] == ["mlp", "mlp/before"]
    assert paths[-1] == "mlp/after"


@pytest.mark.parametrize("objects", [
    (keras_object("a", "Dense", children=[("self", 0), ("layer-0", 0)]),),
    (keras_object("a", "Dense", children=[("b", 1)]), keras_object("b", "Dense", children=[("a", 0), ("b", 1)])),  # noqa: E501  # a table
    (keras_object("a", "Dense", children=[("gone", 99), ("before", -1), ("layer-0", 2**31 - 1)]),),
    (keras_object("a", "Dense", children=[("list", 1)]), Object(identifier="trackable_list_wrapper", children=[("0", 1), ("1", 0)])),  # noqa: E501  # a table
    (keras_object("a", "Dense", children=[("layer-" + "9" * 5000, 0)]),),
], ids=["itself", "each other", "out of range", "list in itself", "5000 digits"])  # fmt: skip
def test_object_graphs_that_lead_in_circles_or_nowhere_are_read(
    objects: tuple[Object, ...], tmp_path: Path
) -> None:
    """
    Each node is one layer, whatever edges lead to it; edges to nodes that do not exist are none.
    """
    ended = run("inspect", saved_model(tmp_path / "circle", objects), "--format", "json")
    assert (ended.code, ended.err) == (0, "")
    layers = ended.json["models"][0]["layers"]
    assert len(layers) == sum(item.metadata is not None for item in objects)


def test_keras_metadata_of_nodes_that_do_not_exist_is_passed_over(tmp_path: Path) -> None:
    """Node numbers of ``keras_metadata.pb`` that the graph lacks hold no layer."""
    path = small_saved_model(tmp_path / "saved", separate=True)
    message = protobuf_messages.parse("KerasMetadata", (path / "keras_metadata.pb").read_bytes())
    for number in (-1, 3, 2**31 - 1):
        message.nodes.add(node_id=number, identifier=b"_tf_keras_layer", metadata=b"{}")
    (path / "keras_metadata.pb").write_bytes(message.SerializeToString())
    assert [layer.path for layer in policytool.inspect(path).layers] == ["mlp", "mlp/dense_a"]


def test_contradicting_metadata_is_reported_and_the_newer_counts(tmp_path: Path) -> None:
    """
    If ``saved_model.pb`` and ``keras_metadata.pb`` disagree, the rule of TF 2.5 decides, and the
    report contains a note.
    """
    path = small_saved_model(tmp_path / "saved")
    message = protobuf_messages.parse("KerasMetadata", b"")
    other = {**instance("Dense", name="dense_a", dtype="float16"), "name": "dense_a"}
    message.nodes.add(node_id=1, identifier=b"_tf_keras_layer", metadata=json.dumps(other).encode())
    (path / "keras_metadata.pb").write_bytes(message.SerializeToString())
    model = policytool.inspect(path)
    assert model.layers[1].policy == "float16"
    assert ("metadata-differs", "keras_metadata.pb#1") in [
        (item.code, item.where) for item in model.observations
    ]


@pytest.mark.parametrize(
    "name",
    ["default_float32", "exp_mf16_fixed128", "global_mixed_float16", "mha_mixed", "subclassed"],
)
def test_numbers_of_objects_are_no_difference(name: str) -> None:
    """TF 2.5 writes some of them to ``keras_metadata.pb`` alone."""
    assert "metadata-differs" not in {
        item.code for item in policytool.inspect(FIXTURES / "tf2.5" / name).observations
    }


def test_keras_layers_below_a_root_that_is_none_are_not_denied(tmp_path: Path) -> None:
    """A ``tf.Module`` around a Keras model: the report does not say that there are no variables."""
    root = Object(identifier="_generic_user_object", children=[("net", 1)])
    objects = [
        root,
        keras_object("net", "Dense", children=[("kernel", 2)]),
        Object(variable=("k", 1, (2,))),
    ]
    ended = run("inspect", saved_model(tmp_path / "module", objects), "--format", "json")
    assert ended.code == 0
    model = ended.json["models"][0]
    assert "holds no variables" not in json.dumps(model)
    assert model["summary"]["parameters"] == 2
