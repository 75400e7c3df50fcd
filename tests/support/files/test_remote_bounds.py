"""What a request to a server may take of this machine, whichever backend makes it."""

from __future__ import annotations

import logging
import os
import sys
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import pytest

from policytool.support.errors import ModelFileError
from policytool.support.files import remote_path, remote_requests
from policytool.support.files.remote_path import status_from
from tests.conftest import run, run_process
from tests.helpers.loopback_server import listening
from tests.helpers.marks import THOROUGH
from tests.helpers.stand_in_mlflow import NAME, stand_in_mlflow

if TYPE_CHECKING:
    from collections.abc import Callable
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

    from tests.conftest import Bounded

PATH: Final = remote_path.parse("s3://bucket/model.h5")
ON_LINUX: Final = pytest.mark.skipif(sys.platform != "linux", reason="the system tells no memory")


def endless(collected: list[bytes], size: int) -> Callable[[], None]:
    """Return what collects an answer without end."""

    def act() -> None:
        while True:
            collected.append(b"x" * size)
            time.sleep(0.001)

    return act


def is_growing(collected: list[bytes]) -> bool:
    """Return whether more is collected."""
    before = len(collected)
    time.sleep(0.1)
    return len(collected) > before


@ON_LINUX
def test_an_endless_answer_ends_at_the_bound_on_memory(bounded: Bounded) -> None:
    """Long before the time is over, and nothing goes on with it."""
    collected: list[bytes] = []
    bounded("remote-answer-bytes", 32 * 2**20)
    with pytest.raises(ModelFileError) as failure:
        remote_requests.request(PATH, endless(collected, 2**20))
    assert failure.value.code == "remote-limit"
    assert "remote-answer-bytes" in str(failure.value)
    assert len(collected) < 1_000
    assert not is_growing(collected)


@THOROUGH
def test_request_above_the_time_limit_is_stopped(bounded: Bounded) -> None:
    """Without the stop, the request would collect bytes until the process ends."""
    collected: list[bytes] = []
    bounded("remote-seconds", 1)
    with pytest.raises(ModelFileError) as failure:
        remote_requests.request(PATH, endless(collected, 1))
    assert failure.value.code == "remote-timeout"
    assert not is_growing(collected)


@pytest.mark.parametrize(
    ("package", "logger"), [("adlfs", "azure.core"), ("gcsfs", "google.auth"), ("s3fs", "botocore")]
)
def test_libraries_of_a_backend_print_nothing(
    package: str, logger: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Messages of these libraries may contain a signed URL."""
    logging.getLogger(logger.partition(".")[0]).handlers.clear()
    remote_requests.silence(package)
    logging.getLogger(logger).warning("a message")
    assert capsys.readouterr().err == ""


@THOROUGH
def test_directories_in_directories_without_end_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server may make them up."""
    with stand_in_mlflow(tmp_path) as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
        monkeypatch.setattr(server, "files", lambda _: [{"path": "d" * 200, "is_dir": True}])
        ended = run("inspect", f"models:/{NAME}/1", "--format", "json")
    assert ended.code == 3
    assert len(ended.json["failures"]) == 1
    assert len(server.requests) < 100


def endless_body(handler: BaseHTTPRequestHandler) -> None:
    """Send an answer in chunks without end; no object has the name of the directory."""
    if handler.command == "HEAD":
        handler.send_response(HTTPStatus.NOT_FOUND)
        handler.end_headers()
        return
    handler.send_response(HTTPStatus.OK)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    block = b" " * 2**16
    while True:
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(block), block))


@pytest.mark.parametrize("size", ["abc", -5, 10**30, [], {}])
def test_a_size_that_no_file_has_is_an_invalid_answer(size: object) -> None:
    """A backend may pass on anything that a server says."""
    with pytest.raises(ModelFileError) as failure:
        remote_requests.request(PATH, lambda: status_from({"name": "x", "size": size}))
    assert failure.value.code == "remote-failed"


@ON_LINUX
@THOROUGH
@pytest.mark.parametrize(
    ("package", "url"),
    [("s3fs", "s3://bucket/m/"), ("gcsfs", "gs://bucket/m/"), ("adlfs", "az://container/m/")],
)
def test_endless_listing_is_an_error(package: str, url: str) -> None:
    """The listing runs in the process of the command, where its memory is bounded."""
    pytest.importorskip(package)
    with listening(endless_body) as address:
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "STORAGE_EMULATOR_HOST": address,
            "AZURE_STORAGE_CONNECTION_STRING": "DefaultEndpointsProtocol=http;AccountName=test;"
            f"AccountKey=dGVzdA==;BlobEndpoint={address}/test;",
        }
        ended = run_process(
            "inspect", url, "--limit", "remote-answer-bytes=64MiB", environment=environment
        )
    assert ended.code == 3
    assert "[remote-limit]" in ended.err
    assert len(ended.err.splitlines()) <= 2
