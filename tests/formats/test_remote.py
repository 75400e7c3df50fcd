"""Remote models: read in ranges, within limits, and without printing credentials."""

from __future__ import annotations

import gc
import json
import os
import socket
import zipfile
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import fsspec
import h5py
import numpy as np
import pytest

import policytool
from policytool.formats import discovery
from policytool.formats.hdf5 import library
from policytool.support import limits
from policytool.support.errors import UsageError
from policytool.support.files import opening, remote, remote_path, remote_requests, remote_stream
from policytool.support.text import codec
from tests.conftest import run, run_process
from tests.helpers.located_reports import report
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.range_server import RangeServer, range_server
from tests.helpers.s3_server import BUCKET, SECRET, forget_servers, put, s3_bucket
from tests.helpers.small_models import (
    dense,
    h5_model,
    keras_members,
    keras_zip,
    sequential,
    weights_bytes,
)
from tests.helpers.stand_in_mlflow import StandInMlflow, stand_in_mlflow

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = THOROUGH

REGISTERED: Final = "models:/resnet/1"
DIRECTORIES: Final = (
    "keras3.15/global_mixed_float16.export",
    "keras3.15/unpacked.keras.d",
    "tf2.15/global_mixed_float16",
)
"""Models that are directories."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RangeServer]:
    """Start a web server for the test's directory."""
    with range_server(tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    """Start an S3 server on this machine, and return the client of a new bucket."""
    with s3_bucket() as client:
        yield client


def h5_file(path: Path) -> Path:
    """Write a small HDF5 model."""
    return h5_model(path, sequential(dense()))


def h5_with_names(path: Path) -> None:
    """Write an HDF5 model with long names and a large array."""
    import h5py

    with h5py.File(h5_file(path), "a") as file:
        file["model_weights/dense_a/dense_a/large:0"] = np.zeros(5000, dtype="float32")
        file["model_weights/dense_a"].attrs["weight_names"] = ["dense_a/kernel:0", "dense_a/bias:0"]


def archive_with_names(path: Path) -> None:
    """Write an archive of a subclassed model with long layer names and a large array."""
    import io

    import h5py

    buffer = io.BytesIO(weights_bytes())
    with h5py.File(buffer, "a") as file:
        file["layers/dense/vars/2"] = np.zeros(5000, dtype="float32")
        file["layers/dense/vars"].attrs["name"] = "dense_a"
    config = {"class_name": "Net", "config": {"name": "net"}}
    keras_zip(path, {**keras_members(config), "model.weights.h5": buffer.getvalue()})


def _name(build: Any) -> str:
    """Return a name with the suffix of the format, which verdicts on local files consider."""
    return "model.h5" if build in (h5_file, h5_with_names) else "model.keras"


@pytest.mark.parametrize("build", [h5_file, keras_zip])
def test_a_file_on_a_web_server_is_read_as_a_local_one(
    server: RangeServer, tmp_path: Path, build: Any
) -> None:
    path = tmp_path / _name(build)
    build(path)
    assert report(f"{server.url}/{path.name}") == report(path)


def test_credentials_in_a_url_are_sent_and_not_shown(server: RangeServer, tmp_path: Path) -> None:
    """The report contains neither the query nor the user."""
    h5_file(tmp_path / "model.h5")
    address = server.url.replace("://", f"://user:{SECRET}@")
    ended = run("inspect", f"{address}/model.h5?signature={SECRET}", "--format", "json")
    assert ended.code == 0
    assert SECRET in server.requests[0]
    assert SECRET not in ended.out + ended.err
    assert ended.json["models"][0]["path"] == f"{server.url}/model.h5"


@pytest.mark.parametrize(
    "status",
    [
        HTTPStatus.NOT_FOUND,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.NOT_IMPLEMENTED,
    ],
)
def test_errors_of_a_server_show_no_credentials(server: RangeServer, status: HTTPStatus) -> None:
    """Even if the message of the backend does."""
    server.failures = [status] * 20
    ended = run("inspect", "-v", f"{server.url}/model.h5?signature={SECRET}")
    assert ended.code == 3
    assert SECRET not in ended.out + ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("failures", "code"),
    [
        ([HTTPStatus.NOT_FOUND] * 9, "not-found"),
        ([HTTPStatus.FORBIDDEN] * 9, "remote-denied"),
        ([HTTPStatus.SERVICE_UNAVAILABLE] * 99, "remote-unavailable"),
    ],
)
def test_each_failure_has_a_code(
    server: RangeServer, failures: list[HTTPStatus], code: str
) -> None:
    server.failures = failures
    with mock.patch.object(remote_requests, "_FIRST_WAIT", 0.01):
        ended = run("inspect", f"{server.url}/model.h5", "--format", "json")
    assert ended.code == 3
    assert [failure["code"] for failure in ended.json["failures"]] == [code]


def test_a_request_that_fails_once_is_repeated(server: RangeServer, tmp_path: Path) -> None:
    h5_file(tmp_path / "model.h5")
    server.failures = [HTTPStatus.SERVICE_UNAVAILABLE] * 2
    with mock.patch.object(remote_requests, "_FIRST_WAIT", 0.01):
        assert run("inspect", f"{server.url}/model.h5").code == 0


def test_a_server_that_stalls_ends_at_the_limit(
    server: RangeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that does not answer is a one-line error that names the time limit."""
    server.stall = 3
    monkeypatch.setattr(remote_requests, "_STOP_SECONDS", 0.01)
    url = f"{server.url}/model.h5"
    ended = run("inspect", url, "--format", "json", "--limit", "remote-seconds=1")
    assert ended.code == 3
    (failure,) = ended.json["failures"]
    assert failure["code"] == "remote-timeout"
    assert "--limit remote-seconds=2" in failure["message"]


def test_port_without_a_server_gives_a_one_line_error() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/model.h5"
    with mock.patch.object(remote_requests, "_FIRST_WAIT", 0.01):
        ended = run("inspect", url, "--format", "json")
    assert [failure["code"] for failure in ended.json["failures"]] == ["remote-unavailable"]


def test_invalid_certificate_gives_a_one_line_error(server: RangeServer) -> None:
    """The test uses a server without TLS, because both fail in the handshake."""
    ended = run("inspect", server.url.replace("http://", "https://") + "/a.h5", "--format", "json")
    assert [failure["code"] for failure in ended.json["failures"]] == ["remote-tls"]


def test_server_without_ranges_is_rejected(server: RangeServer, tmp_path: Path) -> None:
    """A server without ranges is an error, because a whole file is never transferred."""
    (tmp_path / "model.h5").write_bytes(b"\0" * 10_000_000)
    server.ranges = False
    ended = run("inspect", f"{server.url}/model.h5", "--format", "json")
    assert [failure["code"] for failure in ended.json["failures"]] == ["remote-ranges"]


def test_file_that_changes_during_reading_is_an_error(server: RangeServer, tmp_path: Path) -> None:
    h5_file(tmp_path / "model.h5")
    server.changing = True
    ended = run("inspect", f"{server.url}/model.h5", "--format", "json")
    assert [failure["code"] for failure in ended.json["failures"]] == ["changed"]


def test_web_address_is_read_without_requests_for_other_files(
    server: RangeServer, tmp_path: Path
) -> None:
    h5_file(tmp_path / "model.weights.h5")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "metadata.json").write_text("{}")
    run("inspect", f"{server.url}/model.weights.h5")
    assert {request.partition(" ")[2] for request in server.requests} == {"/model.weights.h5"}


def test_little_is_transferred_of_a_large_file(server: RangeServer, tmp_path: Path) -> None:
    """A large file needs few requests for its metadata, and its values are not transferred."""
    import h5py

    h5_file(tmp_path / "model.h5")
    with h5py.File(tmp_path / "model.h5", "a") as file:
        file["model_weights"].create_dataset("large", shape=(5_000_000,), dtype="f8")[:] = 1
    assert report(f"{server.url}/model.h5") == report(tmp_path / "model.h5")
    assert server.sent < 200_000
    assert len(server.requests) < 20


@pytest.mark.parametrize("build", [h5_with_names, archive_with_names])
def test_names_in_a_large_file_are_read(server: RangeServer, tmp_path: Path, build: Any) -> None:
    """
    Long names in a large file, as Keras 3 writes them, are read in local and remote files and in
    archive members.
    """
    path = tmp_path / _name(build)
    build(path)
    with limits.override({"h5-text-bytes": 1000}):
        assert report(f"{server.url}/{path.name}") == report(path)
        assert policytool.inspect(path).summary.parameters == 5014


@pytest.mark.parametrize("name", DIRECTORIES)
def test_a_directory_in_a_bucket_is_read_as_a_local_one(bucket: Any, name: str) -> None:
    assert report(put(bucket, FIXTURES / name, f"d/{name}")) == report(FIXTURES / name)


def test_a_checkpoint_in_a_bucket_is_read_as_a_local_one(bucket: Any) -> None:
    index = next((FIXTURES / "checkpoints").glob("*.index"))
    for part in index.parent.glob(f"{index.stem}.*"):
        put(bucket, part, f"c/{part.name}")
    local = report(index)
    assert local["models"]
    for name in (index.stem, index.name, f"{index.stem}.data-00000-of-00001"):
        assert report(f"s3://{BUCKET}/c/{name}") == local


def test_audit_and_diff_read_values_of_a_bucket(bucket: Any) -> None:
    """Findings and differences of models in a bucket equal those of local files."""
    path = FIXTURES / "keras3.3/global_mixed_float16.h5"
    url = put(bucket, path, "v/model.h5")
    ended = run("diff", url, path)
    assert ended.code == 0
    assert "byte-identical" in ended.out
    audits = [run("audit", "--weights", place, "--format", "json").json for place in (url, path)]
    assert audits[0]["models"][0]["findings"] == audits[1]["models"][0]["findings"]


def test_the_python_functions_read_a_bucket(bucket: Any, tmp_path: Path) -> None:
    h5_file(tmp_path / "model.h5")
    url = put(bucket, tmp_path / "model.h5", "api/model.h5")
    assert policytool.inspect(url).path == url
    assert policytool.audit(url).path == url


def test_worker_processes_read_a_bucket(bucket: Any, tmp_path: Path) -> None:
    """Several URLs are read by worker processes into one report, in the order of the arguments."""
    h5_file(tmp_path / "model.h5")
    urls = [put(bucket, tmp_path / "model.h5", f"w/{name}.h5") for name in "ab"]
    ended = run_process("inspect", *urls, "--jobs", "2", "--format", "json")
    assert [model["path"] for model in ended.json["models"]] == urls


def test_registered_model_in_a_bucket_is_read_from_the_bucket(bucket: Any, tmp_path: Path) -> None:
    """
    A registered model whose files are in a bucket is read from the bucket in ranges, and reported
    under its own name.
    """
    h5_file(tmp_path / "model.h5")
    put(bucket, tmp_path / "model.h5", "r/data/model.h5")
    put(bucket, FIXTURES / DIRECTORIES[0], "r/data/model")
    bucket.put_object(Bucket=BUCKET, Key="r/", Body=b"")
    with stand_in_mlflow(tmp_path) as registry, _registry(registry, f"s3://{BUCKET}/r/"):
        ended = run("inspect", REGISTERED, f"{REGISTERED}/data/m*", "--format", "json")
        assert [model["path"] for model in ended.json["models"]] == [
            f"{REGISTERED}/data/model",
            f"{REGISTERED}/data/model.h5",
        ]
        assert report(f"{REGISTERED}/data/model.h5") == report(tmp_path / "model.h5")
        assert (
            "byte-identical"
            in run("diff", f"{REGISTERED}/data/model.h5", tmp_path / "model.h5").out
        )
        failures = run("inspect", f"{REGISTERED}/none.h5", "--format", "json").json["failures"]
        assert [failure["code"] for failure in failures] == ["not-found"]
        assert not any("artifacts/" in request for request in registry.requests)


def test_a_package_for_the_bucket_of_a_registered_model_is_named(tmp_path: Path) -> None:
    with (
        stand_in_mlflow(tmp_path) as registry,
        _registry(registry, "gs://bucket/r"),
        mock.patch.object(remote, "find_spec", lambda name: None if name == "gcsfs" else name),
    ):
        ended = run("inspect", REGISTERED, "--format", "json")
    (failure,) = ended.json["failures"]
    assert (failure["path"], failure["code"]) == (REGISTERED, "remote-package")
    assert "pip install 'policytool[remote]' gcsfs" in failure["message"]


@contextmanager
def _registry(registry: StandInMlflow, location: str) -> Iterator[None]:
    registry.location = location
    with mock.patch.dict(os.environ, {"MLFLOW_TRACKING_URI": registry.url}):
        yield


@pytest.mark.parametrize("url", [f"s3://{BUCKET}/none.h5", "s3://no-such-bucket/none.h5"])
def test_a_missing_object_or_bucket_is_not_found(bucket: Any, url: str) -> None:
    del bucket
    ended = run("inspect", url, "--format", "json")
    assert ended.code == 3
    assert [failure["code"] for failure in ended.json["failures"]] == ["not-found"]


def test_missing_credentials_are_one_sentence(bucket: Any, tmp_path: Path) -> None:
    """Missing credentials are a one-line error that names the place for them."""
    del bucket
    environment = {"HOME": str(tmp_path), "AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    ended = run_process("inspect", f"s3://{BUCKET}/a.h5", environment={**os.environ, **environment})
    assert ended.code == 3
    assert "[remote-credentials]" in ended.err


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    del tmp_path
    with mock.patch.object(remote, "find_spec", return_value=None):
        ended = run("inspect", "gs://bucket/model.h5")
    assert ended.code == 3
    assert "pip install 'policytool[remote]' gcsfs" in ended.err


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("build", [h5_file, keras_zip])
def test_a_member_of_a_zip_archive_is_read(
    tmp_path: Path, server: RangeServer, method: int, build: Any
) -> None:
    path = tmp_path / _name(build)
    build(path)
    with zipfile.ZipFile(tmp_path / "all.zip", "w", method) as archive:
        archive.write(path, f"in/{path.name}")
    local = report(path)
    assert report(f"zip://in/{path.name}::{tmp_path / 'all.zip'}") == local
    assert report(f"zip://in/{path.name}::{server.url}/all.zip") == local


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\3\4" + b"\0" * 50])
def test_damaged_archive_is_one_failure_of_its_member(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "all.zip").write_bytes(content)
    ended = run("inspect", f"zip://a.h5::{tmp_path / 'all.zip'}", "--format", "json")
    assert [failure["code"] for failure in ended.json["failures"]] == ["truncated"]


def test_a_fifo_as_archive_is_not_waited_for(tmp_path: Path) -> None:
    """A named pipe as an archive is an error and does not block."""
    os.mkfifo(tmp_path / "all.zip")
    ended = run("inspect", f"zip://a.h5::{tmp_path / 'all.zip'}")
    assert ended.code == 3


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("ssh://host/model.h5", "nsupported protocol ssh"),
        ("file:///etc/passwd", "nsupported protocol file"),
        ("reference://model.h5", "nsupported protocol reference"),
        ("simplecache::s3://bucket/model.h5", ""),
        ("filecache://a::s3://bucket/model.h5", "nsupported protocol filecache"),
        ("s3://bucket/a::file:///etc/passwd", "only zip:// can refer to another URL"),
        ("zip://a::zip://b::c.zip", "an archive in an archive"),
        ("zip://a", "has no archive"),
        ("zip://../a::c.zip", "cannot contain the part '..'"),
        ("zip://a::file:///etc/passwd", "nsupported protocol file"),
        ("s3://bucket/../other/model.h5", "cannot contain the part '..'"),
        ("s3://", "does not name"),
        (f"s3://key:{SECRET}@bucket/model.h5", "cannot contain credentials"),
        (f"ftp://key:{SECRET}@host/model.h5?a={SECRET}", "nsupported protocol ftp"),
        ("s3://bucket/a\0b", "NUL"),
    ],
)
def test_url_that_cannot_be_read_is_rejected(url: str, said: str) -> None:
    ended = run("inspect", url)
    assert ended.code in ((2,) if said else (3,))
    assert said in ended.err
    assert SECRET not in ended.err


@pytest.mark.parametrize(
    "command", ["check --to mixed_float16", "tune --to mixed_float16", "audit --fix"]
)
def test_commands_that_need_a_local_file_reject_a_url(command: str) -> None:
    ended = run(*command.split(), f"s3://key:{SECRET}@bucket/model.h5")
    assert ended.code == 2
    assert "is a URL" in ended.err
    assert SECRET not in ended.err


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://u:p@host:1/a/b.h5?x=1#y", "https://host:1/a/b.h5"),
        ("https://host/a?x", "https://host/a"),
        ("s3://bucket/a?b.h5", "s3://bucket/a"),
        ("s3://bucket/a#b.h5", "s3://bucket/a"),
        ("az://box/a.h5?sv=1&sig=2", "az://box/a.h5"),
        ("abfs://box@account.dfs.core.windows.net/a", "abfs://box@account.dfs.core.windows.net/a"),
        ("zip://a.h5::https://u:p@host/b.zip?sig=1", "zip://a.h5::https://host/b.zip"),
        ("HTTPS://u@host/a", "https://host/a"),
    ],
)
def test_displayed_url_has_no_user_password_or_query(url: str, shown: str) -> None:
    assert remote_path.without_secrets(url) == shown
    assert remote_path.parse(url).shown == shown
    assert "u:p" not in repr(remote_path.parse(url))


def test_paths_below_and_beside_a_url() -> None:
    path = remote_path.parse("s3://bucket/models/a.h5")
    assert (path.name, path.suffix, path.parent.name) == ("a.h5", ".h5", "models")
    assert path.with_name("b").shown == "s3://bucket/models/b"
    assert (path.parent / "c/d").shown == "s3://bucket/models/c/d"
    member = remote_path.parse("zip://in/a.h5::all.zip")
    assert member.with_name("b").url == "zip://in/b::all.zip"
    assert member.parent.parent.url == "zip://::all.zip"
    assert (member.parent.parent / "c").url == "zip://c::all.zip"
    web = remote_path.parse("https://u@host/a.h5?s=1")
    assert web.with_name("b").url == "https://u@host/b"


@pytest.mark.parametrize(
    ("name", "out"), [("b", False), ("b/c", False), ("../b", True), ("b/../../c", True)]
)
def test_names_lead_out_of_a_remote_directory(name: str, *, out: bool) -> None:
    """Names with ``..`` lead out of a remote directory; remote directories have no links."""
    home = remote_path.parse("s3://bucket/models/a")
    assert opening.links_out(home / name, home) is out
    assert opening.links_out(home.parent / "ab", home)
    assert opening.links_out(Path("b"), home)


def test_an_input_goes_to_another_process_and_back() -> None:
    """
    An input that is sent to another process keeps its type: a URL with its settings, or a path.
    """
    read = codec.reader(discovery.Input)
    for path in (Path("a.h5"), remote_path.parse(f"https://u:{SECRET}@host/a.h5")):
        result = discovery.Input(path=path, exact=True)
        assert read(json.loads(codec.encode(result))) == result


def test_the_bound_on_names_of_a_directory() -> None:
    """A server may list names endlessly."""
    memory = fsspec.filesystem("memory")
    for name in "abc":
        memory.pipe(f"/names/{name}.json", b"{}")
    path = remote_path.parse("memory://names")
    with limits.override({"remote-names": 2}), pytest.raises(policytool.ModelFileError) as caught:
        opening.names(path)
    assert caught.value.code == "remote-limit"
    assert "remote-names limit of 2" in str(caught.value)


def test_no_request_waits_for_garbage_of_h5py() -> None:
    """
    No request waits for garbage collection of h5py, whose lock is held while HDF5 reads and which
    another thread would need.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.set_threshold(20_000)  # more than this thread makes, and less than the other one
    objects: list[Any] = [h5py.h5s.create(h5py.h5s.SCALAR)]
    objects.append(objects)
    del objects  # a cycle, which only a collection frees
    try:
        with limits.override({"remote-seconds": 5}), h5py._objects.phil:  # noqa: SLF001  # as HDF5 has it
            result = remote_requests.request(
                remote_path.parse("s3://box/model"), lambda: [[number] for number in range(100_000)]
            )
    finally:
        gc.set_threshold(*before)
    assert len(result) == 100_000
    assert gc.isenabled()


def test_no_garbage_is_collected_between_the_requests_of_a_model(
    server: RangeServer, tmp_path: Path
) -> None:
    """
    The garbage collector does not run between the requests of a model, because a previous thread
    may still be running.
    """
    h5_file(tmp_path / "model.h5")
    collects: list[bool] = []
    open_stream = library._open_stream  # noqa: SLF001  # what h5py reads a remote file by

    def noting(stream: Any) -> h5py.File:
        collects.append(gc.isenabled())
        return open_stream(stream)

    with mock.patch.object(library, "_open_stream", noting):
        ended = run("audit", "--weights", f"{server.url}/model.h5", "--format", "json")
    assert ended.json["models"]
    assert len(collects) > 1  # the config, and the values
    assert not any(collects)
    assert gc.isenabled()


def test_memory_for_parts_is_bounded() -> None:
    """
    The memory for parts of remote files is limited: the oldest part is dropped and read again if
    necessary.
    """
    memory = fsspec.filesystem("memory")
    data = os.urandom(2**20)
    memory.pipe("/large/file", data)
    opening.forget()
    stream = opening.regular_stream(remote_path.parse("memory://large/file"))
    with limits.override({"remote-cache-bytes": 50_000}):
        for offset in (*range(0, 2**20, 50_000), 0, 999_999, 7):
            stream.seek(offset)
            assert stream.read(100) == data[offset : offset + 100]
            assert opening.session()._held < 50_000 + remote_stream.BEFORE + remote_stream.AFTER  # noqa: SLF001
    stream.seek(0)
    assert stream.read() == data


def test_changed_model_is_read_again() -> None:
    memory = fsspec.filesystem("memory")
    for name in ("one", "two"):
        memory.pipe("/now/model.json", json.dumps(sequential(name=name)).encode())
        assert policytool.inspect("memory://now/model.json").layers[0].path == name


def test_a_copy_of_a_process_closes_no_connection() -> None:
    """The backend of Azure would wait forever at its end."""
    code = (
        "import os, weakref; from policytool.support.files import opening;"
        "system = type('System', (), {})();"
        "weakref.finalize(system, lambda kept: os.write(1, b'closed'), system);"
        "opening.session()._systems['az'] = system;"
        "child = os.fork(); child and os.waitpid(child, 0)"
    )
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    assert done.stdout == b"closed"


def test_a_drive_is_no_protocol() -> None:
    """A Windows path with a drive is not read as a URL."""
    assert not remote_path.is_url("C:\\models\\a.h5")
    assert not remote_path.is_url("C://models/a.h5")
    with pytest.raises(UsageError):
        remote_path.parse("C://models/a.h5")


def test_prefix_and_glob_select_the_models_below(bucket: Any, tmp_path: Path) -> None:
    """
    A prefix and a glob select the models below them, sorted by name, with directories as one model,
    and without hidden names and backups.
    """
    h5_file(tmp_path / "m.h5")
    for name in ("b.h5", "a.h5", "a/z.h5", ".hidden/x.h5", "old.h5.bak", "notes.txt"):
        put(bucket, tmp_path / "m.h5" if name.endswith("h5") else Path(__file__), f"p/{name}")
    put(bucket, FIXTURES / "keras3.15/unpacked.keras.d", "p/k")
    base = f"s3://{BUCKET}/p"
    actual = [
        input_value.display_path for input_value in discovery.inputs([f"{base}/"], remote=True)
    ]
    assert actual == [f"{base}/{name}" for name in ("k", "a.h5", "b.h5", "notes.txt", "a/z.h5")]
    for pattern, names in (("*.h5", ["a.h5", "b.h5"]), ("a*", ["a/z.h5", "a.h5"]), ("k*", ["k"])):
        matched = [
            input_value.display_path
            for input_value in discovery.inputs([f"{base}/{pattern}"], remote=True)
        ]
        assert matched == [f"{base}/{name}" for name in names]
    ended = run("inspect", base, f"{base}/*.h5", "--format", "json", "--jobs", "1")
    assert len(ended.json["models"]) == 4
    assert ended.code == 0


def test_a_glob_without_a_match_is_not_found(bucket: Any) -> None:
    """A glob without a match is an error, because a silent result would pass a CI check."""
    del bucket
    ended = run("inspect", f"s3://{BUCKET}/none/*.h5", "--format", "json")
    assert [failure["code"] for failure in ended.json["failures"]] == ["not-found"]


def test_a_listing_that_fails_is_a_failure(server: RangeServer) -> None:
    environment = {"AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "a"}
    environment |= {"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1"}
    server.failures = [HTTPStatus.FORBIDDEN] * 99
    with mock.patch.dict(os.environ, environment):
        forget_servers()
        ended = run("inspect", f"s3://{BUCKET}/p/*.h5", "--format", "json")
    forget_servers()
    assert [failure["code"] for failure in ended.json["failures"]] == ["remote-denied"]


def test_the_members_of_an_archive_are_listed(tmp_path: Path) -> None:
    h5_file(tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("x/b.h5", "x/a.h5", "c.h5"):
            archive.write(tmp_path / "m", name)
    url = f"zip://::{tmp_path / 'all.zip'}"
    actual = [input_value.path.location for input_value in discovery.inputs([url], remote=True)]  # type: ignore[union-attr]  # all are remote
    assert actual == ["c.h5", "x/a.h5", "x/b.h5"]
    assert run("inspect", url, "--jobs", "1").code == 0


def test_baseline_stores_the_urls_of_remote_models(bucket: Any, tmp_path: Path) -> None:
    """
    A baseline stores the URL of a remote model unchanged, and such a model is not removed as a
    deleted one.
    """
    path = FIXTURES / "keras2.3.1"
    source = next(file for file in sorted(path.glob("*.h5")) if run("audit", file).code == 1)
    url = put(bucket, source, "b/model.h5")
    baseline = tmp_path / "baseline.json"
    run("audit", url, "--write-baseline", baseline)
    entries = json.loads(baseline.read_text(encoding="utf-8"))["findings"]
    assert {entry["path"] for entry in entries} == {url}
    assert run("audit", url, "--baseline", baseline).code == 0


@pytest.mark.parametrize("healthy", range(1, 9))
def test_server_that_fails_during_a_request_gives_a_one_line_error(
    server: RangeServer, tmp_path: Path, healthy: int
) -> None:
    """
    A server that fails during any request is a one-line error, and HDF5 and zip report neither
    damage nor an exception.
    """
    with zipfile.ZipFile(keras_zip(tmp_path / "model.keras"), "a") as archive:
        archive.writestr("assets/large", os.urandom(200_000))
    server.healthy = healthy
    server.failures = [HTTPStatus.FORBIDDEN] * 99
    ended = run("inspect", f"{server.url}/model.keras", "--format", "json")
    codes = {failure["code"] for failure in ended.json["failures"]}
    assert codes == ({"remote-denied"} if healthy < len(server.requests) else set())
