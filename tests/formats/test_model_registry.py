"""Models of MLflow registries: finding their files and reading them within limits."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from unittest import mock

import pytest

import policytool
from policytool.formats import discovery
from policytool.support.errors import UsageError
from policytool.support.files import opening, remote, remote_path, remote_requests
from tests.conftest import MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL, run, run_process
from tests.helpers.located_reports import report
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.small_models import dense, h5_model, sequential
from tests.helpers.stand_in_mlflow import (
    ALIAS,
    API,
    ARTIFACTS,
    HOME,
    LOGGED,
    NAME,
    RUN,
    StandInMlflow,
    stand_in_mlflow,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Bounded

MODEL: Final = f"models:/{NAME}/1"
FILE: Final = f"{MODEL}/data/model.h5"
SECRET: Final = "hidden-secret"  # noqa: S105  # of a test
LISTING: Final = ARTIFACTS
"""The path under which the server lists all directories."""

pytestmark = THOROUGH


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInMlflow]:
    """Start a server with a model in the layout of MLflow."""
    root = tmp_path / "artifacts"
    (root / "data").mkdir(parents=True)
    (root / "MLmodel").write_text("flavors: {}\n", encoding="utf-8")
    (root / "requirements.txt").touch()
    h5_model(root / "data/model.h5", sequential(dense()))
    with stand_in_mlflow(root) as found:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", found.url)
        yield found


@pytest.fixture(autouse=True)
def _no_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Remove the addresses and sessions of other tests, and disable waiting."""
    for name in [name for name in os.environ if name.startswith("MLFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(remote_requests, "_FIRST_WAIT", 0.01)
    opening.forget()
    yield
    opening.forget()


def codes(*arguments: str) -> list[str]:
    """Return the codes of the failures of ``inspect``."""
    ended = run("inspect", *arguments, "--format", "json")
    assert ended.code == 3
    return [failure["code"] for failure in ended.json["failures"]]


@pytest.mark.parametrize("model", [MODEL, f"models:/{NAME}@{ALIAS}", f"models:/{LOGGED}"])
def test_a_registered_model_is_a_directory(server: StandInMlflow, model: str) -> None:
    """By version, alias and id of a logged model."""
    ended = run("inspect", model, "--format", "json")
    assert ended.code == 0
    assert [item["path"] for item in ended.json["models"]] == [f"{model}/data/model.h5"]
    assert report(f"{model}/data/model.h5") == report(server.root / "data/model.h5")
    assert report(f"{model}/data/*.h5") == report(str(server.root / "data/*.h5"))


@pytest.mark.parametrize("source", [MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL])
@pytest.mark.parametrize(
    ("ranges", "etags"), [(True, "same"), (True, "each"), (True, "none"), (False, "none")]
)
def test_a_model_is_read_as_a_local_one(
    server: StandInMlflow, source: Path, etags: str, *, ranges: bool
) -> None:
    """From servers with ranges, without ranges, and with a copy per range."""
    server.ranges, server.etags = ranges, etags
    copy = shutil.copytree if source.is_dir() else shutil.copy
    copy(source, server.root / "data" / source.name)
    assert report(f"{MODEL}/data/{source.name}") == report(source)


@pytest.mark.parametrize("ranges", [True, False])
def test_audit_and_diff_read_values(server: StandInMlflow, *, ranges: bool) -> None:
    """Also from Python functions."""
    server.ranges = ranges
    local = server.root / "data/model.h5"
    assert "byte-identical" in run("diff", FILE, local).out
    audits = [run("audit", "--weights", place, "--format", "json").json for place in (FILE, local)]
    assert audits[0]["models"][0]["findings"] == audits[1]["models"][0]["findings"]
    assert policytool.inspect(FILE).path == FILE


@SLOW
def test_worker_processes_read_registered_models(server: StandInMlflow) -> None:
    """Into one report, in the order of the arguments."""
    shutil.copy(MIXED_KERAS, server.root / "data/second.keras")
    ended = run_process("inspect", MODEL, "--jobs", "2", "--format", "json")
    assert [Path(model["path"]).name for model in ended.json["models"]] == [
        "model.h5",
        "second.keras",
    ]


def test_a_version_may_refer_to_a_run_or_a_logged_model(server: StandInMlflow) -> None:
    local = report(server.root / "data/model.h5")
    for location in (f"runs:/{RUN}/data", f"models:/{LOGGED}/data"):
        server.location = location
        assert report(f"{MODEL}/model.h5") == local


def test_a_moved_alias_is_followed(server: StandInMlflow) -> None:
    """Nothing is remembered from the previous run."""
    path = f"models:/{NAME}@{ALIAS}"
    first = report(path)
    other = server.root / "data/other"
    other.mkdir()
    h5_model(other / "new.h5", sequential(name="other"))
    server.location = f"{HOME}/data/other"
    assert report(path) != first
    assert report(path) == report(other / "new.h5")


def test_little_is_transferred_of_a_large_file(server: StandInMlflow) -> None:
    import h5py

    with h5py.File(server.root / "data/model.h5", "a") as file:
        file["model_weights"].create_dataset("large", shape=(5_000_000,), dtype="f8")[:] = 1
    assert report(FILE) == report(server.root / "data/model.h5")
    assert server.sent < 200_000
    assert len(server.requests) < 30


def test_server_without_ranges_gets_one_request_per_file(server: StandInMlflow) -> None:
    """
    A server without ranges gets one request per file, because it may copy the file from a bucket
    first; one range request shows that it does not support ranges.
    """
    server.ranges = False
    path = server.root / "data/model.h5"
    assert run("inspect", FILE).code == 0
    assert server.sent < 3 * path.stat().st_size
    assert len([request for request in server.requests if f"{ARTIFACTS}/" in request]) == 2


@pytest.mark.parametrize(
    "url",
    [
        f"models:/{NAME}/2",
        "models:/none/1",
        f"models:/{NAME}@none",
        f"models:/m-{'f' * 32}",
        f"{MODEL}/none.h5",
        f"{MODEL}/none/*.h5",
        f"models:/{NAME}/2/*.h5",
    ],
)
def test_an_unknown_model_is_not_found(server: StandInMlflow, url: str) -> None:
    """An unknown model, version, alias, id or file is reported as not found."""
    assert codes(url) == ["not-found"]
    assert url in run("inspect", url).err
    assert server.requests


def test_a_status_of_400_for_an_alias_is_not_found(server: StandInMlflow) -> None:
    """MLflow returns this status for unknown aliases."""
    server.failures = [HTTPStatus.BAD_REQUEST] * 99
    assert codes(f"models:/{NAME}@none") == ["not-found"]


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (HTTPStatus.UNAUTHORIZED, "remote-denied"),
        (HTTPStatus.FORBIDDEN, "remote-denied"),
        (HTTPStatus.SERVICE_UNAVAILABLE, "remote-unavailable"),
        (HTTPStatus.TOO_MANY_REQUESTS, "remote-unavailable"),
        (HTTPStatus.IM_A_TEAPOT, "remote-failed"),
    ],
)
def test_each_failure_has_a_code(server: StandInMlflow, status: HTTPStatus, code: str) -> None:
    """Each failure has a code, and no message contains the address or the credentials."""
    with mock.patch.dict(os.environ, {"MLFLOW_TRACKING_TOKEN": SECRET}):
        for healthy in range(6):
            server.requests.clear()
            server.healthy, server.failures = healthy, [status] * 99
            ended = run("inspect", "-v", FILE, "--format", "json")
            failures = {failure["code"] for failure in ended.json["failures"]}
            assert failures == ({code} if healthy < len(server.requests) else set())
            assert SECRET not in ended.out + ended.err
            assert server.url not in ended.out + ended.err
            assert "Traceback" not in ended.err
    assert server.authorizations == {f"Bearer {SECRET}"}


def test_a_request_that_fails_once_is_repeated(server: StandInMlflow) -> None:
    server.failures = [HTTPStatus.SERVICE_UNAVAILABLE] * 2
    assert run("inspect", FILE).code == 0


def test_a_server_that_stalls_ends_at_the_limit(
    server: StandInMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow would repeat the request for minutes."""
    server.stall = 3
    monkeypatch.setattr(remote_requests, "_STOP_SECONDS", 0.01)
    ended = run("inspect", FILE, "--format", "json", "--limit", "remote-seconds=1")
    (failure,) = ended.json["failures"]
    assert failure["code"] == "remote-timeout"
    assert "--limit remote-seconds=2" in failure["message"]


def test_port_without_a_server_gives_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{free.getsockname()[1]}")
    assert codes(FILE) == ["remote-unavailable"]


def test_invalid_certificate_gives_a_one_line_error(
    server: StandInMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test uses a server without TLS, because both fail in the handshake."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url.replace("http://", "https://"))
    assert codes(FILE) == ["remote-tls"]


def test_credentials_in_the_address_of_a_server_are_sent_and_not_shown(
    server: StandInMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = server.url.replace("://", f"://user:{SECRET}@")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    ended = run("inspect", FILE, f"models:/{NAME}/2", "--format", "json")
    assert len(ended.json["models"]) == 1
    assert all(value.startswith("Basic ") for value in server.authorizations)
    assert SECRET not in ended.out + ended.err


def test_credentials_are_not_sent_to_where_a_server_redirects(
    server: StandInMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", SECRET)
    with stand_in_mlflow(server.root) as other:
        server.redirect = other.url
        assert run("inspect", FILE).code == 0
        assert server.authorizations == {f"Bearer {SECRET}"}
        assert other.authorizations == {""}


@pytest.mark.parametrize("address", ["", "file:///tmp/none", "sqlite:///none.db", "databricks"])
def test_missing_server_address_gives_a_one_line_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """No database is created, unlike in MLflow."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert codes(FILE) == ["remote-location"]
    assert "set MLFLOW_TRACKING_URI" in run("inspect", FILE).err.replace("Set", "set")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("location", "said"),
    [
        ("/etc", "on the disk of the server"),
        ("file:///etc", "on the disk of the server"),
        ("mlflow-artifacts://192.0.2.1/home", "on another server"),
        ("mlflow-artifacts://[::/home", "on another server"),
        ("http://192.0.2.1/home", "in another place"),
        ("dbfs:/home", "in another place"),
        ("memory://home", "in another place"),
        ("zip://a::/etc/a.zip", "in another place"),
        ("s3://bucket/../other", "at an invalid address"),
        ("s3://bucket/a::file:///etc", "at an invalid address"),
        (f"s3://key:{SECRET}@bucket/a", "at an invalid address"),
        ("s3:/etc", "at an invalid address"),
        ("", "not one of an MLflow server"),
        ("runs:/none/a", "does not exist"),
        (f"models:/{LOGGED}", "not one of an MLflow server"),
    ],
)
def test_registered_model_is_only_on_the_server_or_in_a_bucket(
    server: StandInMlflow, location: str, said: str
) -> None:
    """
    The location of a registered model can be on its server or in a bucket, but not a local file or
    another server, because any user can set it.
    """
    server.location = location
    server.locations[LOGGED] = f"models:/{LOGGED}"  # which leads to itself
    ended = run("inspect", MODEL)
    assert ended.code == 3
    assert said in " ".join(ended.err.split())
    assert SECRET not in ended.err
    assert len(server.requests) < 20


@pytest.mark.parametrize(
    "entry",
    [
        {"path": "..", "is_dir": True},
        {"path": ".", "is_dir": True},
        {"path": "", "is_dir": True},
        {"path": "../../etc/passwd"},
        {"path": "/etc/passwd"},
        {"path": "a\0b"},
        {"path": "\ud800"},
        {"path": 1},
        {"path": "a.h5", "file_size": -1},
        {"path": "a.h5", "file_size": "1e9"},
        {"path": "a.h5", "file_size": 10**30},
        {"path": "a.h5", "file_size": []},
        "a.h5",
        None,
    ],
)
def test_listing_with_an_invalid_entry_is_rejected(server: StandInMlflow, entry: Any) -> None:
    server.answers[LISTING] = json.dumps({"files": [entry]}).encode()
    assert codes(MODEL) == ["remote-failed"]
    assert all(f"{ARTIFACTS}/" not in request for request in server.requests)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"", "remote-failed"),
        (b"[]", "remote-failed"),
        (b"<html>", "remote-failed"),
        (b"\xff", "remote-failed"),
        (b'{"files": {}}', "remote-failed"),
        (b"[" * 10_000, "remote-limit"),
        (b" " * 300_000, "remote-limit"),
    ],
)
def test_answer_that_is_not_from_mlflow_is_rejected(
    server: StandInMlflow, bounded: Bounded, answer: bytes, code: str
) -> None:
    """An answer that does not come from MLflow is an error, for each kind of request."""
    bounded("json-bytes", 200_000)
    server.answers = {LISTING: answer}
    assert codes(MODEL) == [code]
    server.answers = {f"{API}/model-versions/get-download-uri": answer}
    assert codes(MODEL) == [code]


def test_the_bound_on_names_of_a_model(server: StandInMlflow, bounded: Bounded) -> None:
    """
    The number of names in a model is limited, also for directories that each contain another
    directory.
    """
    bounded("remote-names", 50)
    server.answers[LISTING] = json.dumps({"files": [{"path": "a", "is_dir": True}] * 3}).encode()
    assert run("inspect", MODEL).code == 3
    assert len(server.requests) < 60
    place = remote_path.parse(f"{MODEL}/{'a/' * 9}")
    with pytest.raises(policytool.ModelFileError) as caught:
        opening.matches(place / "**")
    assert caught.value.code == "remote-limit"
    assert "remote-names limit of 50" in str(caught.value)


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("padding", [-100, 1, 20_000_000])
def test_file_with_another_size_than_announced_is_rejected(
    server: StandInMlflow, padding: int, *, ranges: bool
) -> None:
    """No more than that size is read, and a short file is not padded."""
    server.ranges, server.etags, server.padding = ranges, "each", padding
    assert failing_read(server, 0, 150_000) == "changed"
    assert server.sent < 15_000_000


@pytest.mark.parametrize("etags", ["each", "same"])
def test_file_that_changes_during_reading_is_an_error(server: StandInMlflow, etags: str) -> None:
    """The second range has another etag, or the download begins differently."""
    server.etags = etags
    server.swap = b"\1" * 200_000
    if etags == "each":
        assert failing_read(server, 0, 150_000) == "changed"
    else:
        server.stable_ranges = 2
        assert failing_read(server, 0, 150_000, 50_000) == "changed"


def failing_read(server: StandInMlflow, *offsets: int) -> str:
    """Read some ranges of a file of 200,000 bytes, and return the code of the error."""
    (server.root / "data/large").write_bytes(b"\0" * 200_000)
    opening.forget()
    stream = opening.regular_stream(remote_path.parse(f"{MODEL}/data/large"))
    with pytest.raises(policytool.ModelFileError) as caught:
        _read_zeros(stream, offsets)
    return caught.value.code


def _read_zeros(stream: BinaryIO, offsets: tuple[int, ...]) -> None:
    for offset in offsets:
        stream.seek(offset)
        assert stream.read(10) == b"\0" * 10


def test_connection_that_ends_during_a_download_gives_a_one_line_error(
    server: StandInMlflow,
) -> None:
    """The rest cannot be requested."""
    server.ranges, server.broken = False, True
    assert failing_read(server, 0) == "remote-unavailable"


def test_the_bound_on_downloads(server: StandInMlflow, bounded: Bounded) -> None:
    """The total size of all files of a model is limited, before the first download."""
    server.ranges = False
    for name in "ab":
        (server.root / name).write_bytes(b"\0" * 200_000)
    bounded("remote-file-bytes", 399_999)
    assert opening.read_head(remote_path.parse(f"{MODEL}/a"), 1) == b"\0"
    with pytest.raises(policytool.ModelFileError) as caught:
        opening.read_head(remote_path.parse(f"{MODEL}/b"), 1)
    assert caught.value.code == "remote-limit"
    assert "the remote-file-bytes limit of" in str(caught.value)
    assert sum(f"{ARTIFACTS}/home/b" in request for request in server.requests) == 0


def test_full_disk_gives_a_one_line_error(server: StandInMlflow) -> None:
    server.ranges = False
    result = mock.Mock(**{"return_value.write.side_effect": OSError(28, "No space left on device")})
    with mock.patch("policytool.support.files.mlflow_registry.tempfile.TemporaryFile", result):
        assert failing_read(server, 0) == "unreadable"


def test_a_missing_package_is_named() -> None:
    with mock.patch.object(remote, "find_spec", return_value=None):
        ended = run("inspect", MODEL)
    assert ended.code == 3
    assert "pip install 'policytool[mlflow]'" in ended.err


def test_incompatible_package_gives_a_one_line_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that fails to import because of incompatible versions is a one-line error."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "mlflow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mlflow.utils", None)
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.delitem(sys.modules, "mlflow")
    with mock.patch.dict(sys.modules, {"requests": None}):
        assert codes(MODEL) == ["remote-package"]


def test_registered_model_is_read_without_files_and_usage_data(
    server: StandInMlflow, tmp_path: Path
) -> None:
    """Reading a registered model writes no files and sends no usage data, unlike MLflow."""
    home = tmp_path / "home"
    home.mkdir()
    log = tmp_path / "connections"
    environment = {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "CONNECTIONS": str(log)}
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "def hook(event, arguments):\n"
        "    if event == 'socket.connect':\n"
        "        with open(os.environ['CONNECTIONS'], 'a') as log:\n"
        "            print(arguments[1], file=log)\n"
        "sys.addaudithook(hook)\n",
        encoding="utf-8",
    )
    environment["PYTHONPATH"] = str(tmp_path)
    hidden = ("CI", "GITHUB_ACTIONS", "PYTEST_CURRENT_TEST", "PYTEST_VERSION", "DO_NOT_TRACK")
    with mock.patch.dict(os.environ):
        for name in hidden:  # MLflow sends nothing if it knows of a test
            os.environ.pop(name, None)
        ended = run_process("inspect", FILE, cwd=home, environment=environment)
    assert ended.code == 0
    assert ended.err == ""
    assert not list(home.iterdir())
    host, port = server.url.removeprefix("http://").split(":")
    assert set(log.read_text(encoding="utf-8").splitlines()) == {str((host, int(port)))}


def test_settings_of_mlflow_are_as_before(
    server: StandInMlflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading a registered model keeps the MLflow settings of the calling program."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")
    before = dict(os.environ)
    for name in [name for name in sys.modules if name == "mlflow"]:
        del sys.modules[name]
    run("inspect", FILE)
    assert dict(os.environ) == before
    assert server.requests


@pytest.mark.parametrize(
    ("url", "registered", "location"),
    [
        ("models:/a/1", "a/1", ""),
        ("models:/a/12/", "a/12", ""),
        ("models:/a b/1/data/m.h5", "a b/1", "data/m.h5"),
        ("models:/a@b", "a@b", ""),
        ("models:/a@b@c/data", "a@b@c", "data"),
        (f"models:/{LOGGED}/data", LOGGED, "data"),
    ],
)
def test_parts_of_a_url(url: str, registered: str, location: str) -> None:
    """
    The displayed URL of a registered model is the one on the command line and can be used again.
    """
    path = remote_path.parse(url)
    assert (path.registered, path.location) == (registered, location)
    assert path.shown == url.rstrip("/")
    assert remote_path.parse(path.shown) == path
    assert (path / "x").parent == path
    assert remote_path.is_url(url)


def test_registered_model_has_no_parts_outside_its_directory() -> None:
    path = remote_path.parse("models:/a/1")
    assert path.parent == path
    assert path.with_name("b").shown == "models:/a/1/b"
    assert not opening.links_out(path / "b", path)
    assert opening.links_out(path / "../2/b", path)


@pytest.mark.parametrize(
    "url",
    [
        "models:/",
        "models:/a",
        "models:/a/latest",
        "models:/a/Production",
        "models:/*/1",
        "models:/a/*",
        "models://a/1",
        "models:///a/1",
        "models:/a/1/../2",
        "models:/a/1::b",
    ],
)
def test_url_without_a_registered_model_is_rejected(url: str) -> None:
    with pytest.raises(UsageError):
        remote_path.parse(url)
    assert run("inspect", url).code == 2


@pytest.mark.parametrize("path", ["models/a.h5", "models:a/1", "model:/a/1", "C:\\models", "C:/m"])
def test_a_local_path_is_no_url(path: str) -> None:
    """A local path is not read as a URL, even if a directory has such a name."""
    assert not remote_path.is_url(path)


def test_a_member_of_a_registered_archive_is_read(server: StandInMlflow, tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(server.root / "all.zip", "w") as archive:
        archive.write(server.root / "data/model.h5", "in/model.h5")
    url = f"zip://in/model.h5::{MODEL}/all.zip"
    assert report(url) == report(server.root / "data/model.h5")
    assert run("inspect", url, "--format", "json").json["models"][0]["path"] == url
    del tmp_path


def test_a_registered_model_is_no_local_file() -> None:
    result = discovery.Input(path=remote_path.parse(MODEL), exact=True)
    with pytest.raises(UsageError):
        _ = result.local_path
