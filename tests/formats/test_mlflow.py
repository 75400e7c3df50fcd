"""
Models of a real MLflow server, on this machine: on its disk, in a bucket behind it, and in a bucket
that clients read themselves.

``POLICYTOOL_MLFLOW`` names the interpreter of an environment with MLflow, which ``environment.py``
makes; `make test-slow` does both.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from unittest import mock

import pytest
import requests

from policytool.support.files import opening
from tests.conftest import MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL, START, run, run_process
from tests.helpers.located_reports import report
from tests.helpers.marks import ALONE, SLOW
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [SLOW, ALONE]

MLFLOW: Final = os.environ.get("POLICYTOOL_MLFLOW")
"""Read before the tests, whose own environment has no variable of policytool's."""

BUCKET: Final = "artifacts"
CREDENTIALS: Final = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "hidden-secret",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
MODELS: Final = (MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL)
FIXTURES: Final = "models:/fixtures"
_START_SECONDS: Final = 120
"""A server migrates its database first."""


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A server with registered models."""

    environment: dict[str, str]
    process: int
    logged: str
    """The id of a logged model."""

    spare: str
    """The id of another one, which a test may damage."""

    artifacts: Path
    """Files on the server's disk."""


def python() -> str:
    """Return the Python interpreter with MLflow; skip the test if it is missing."""
    if MLFLOW is None:
        pytest.skip(
            "POLICYTOOL_MLFLOW names no interpreter with MLflow; `make test-slow` makes one"
        )
    return str(START / MLFLOW)  # not resolved, because a virtual environment's is a link out of it


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """Start an S3 server with a bucket, and return its address."""
    import boto3
    from moto.server import ThreadedMotoServer

    python()
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with mock.patch.dict(os.environ, CREDENTIALS):
        boto3.client("s3", endpoint_url=f"http://{host}:{port}").create_bucket(Bucket=BUCKET)
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module", params=["disk", "proxied bucket", "bucket"])
def registry(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, bucket: str
) -> Iterator[Registry]:
    """Start a server with the fixtures as registered models."""
    home = tmp_path_factory.mktemp("mlflow")
    model = home / "model"
    (model / "data").mkdir(parents=True)
    for name in ("MLmodel", "conda.yaml", "requirements.txt", "python_env.yaml"):
        (model / name).write_text("{}\n", encoding="utf-8")
    (model / "data/keras_module.txt").write_text("keras", encoding="utf-8")
    for source in MODELS:
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, model / "data" / _stored(source))
    destination = f"s3://{BUCKET}/proxied" if request.param == "proxied bucket" else "./artifacts"
    location = f"s3://{BUCKET}/direct" if request.param == "bucket" else ""
    with _server(home, destination, bucket) as (environment, process):
        script = ROOT / "tests/helpers/mlflow_models.py"
        command = [python(), str(script), location, str(model)]
        logged = subprocess.run(
            command, env=environment, capture_output=True, check=False, text=True
        )
        assert logged.returncode == 0, logged.stderr
        with mock.patch.dict(os.environ, {**environment, "HOME": str(home)}):
            yield Registry(
                environment=environment,
                process=process,
                logged=logged.stdout.split()[-2],
                spare=logged.stdout.split()[-1],
                artifacts=home / "artifacts",
            )


@contextmanager
def _server(home: Path, destination: str, s3: str) -> Iterator[tuple[dict[str, str], int]]:
    """Run a server, and yield the environment of its clients and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {
        **os.environ,
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": s3,
        "MLFLOW_S3_ENDPOINT_URL": s3,
        "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    command = [python(), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", "sqlite:///mlflow.db", "--workers", "1"]
    command += ["--serve-artifacts", "--artifacts-destination", destination]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=home, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process)
        yield environment, process.pid
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(address: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            if requests.get(address, timeout=5).ok:
                return
        except requests.RequestException:
            time.sleep(0.5)
    pytest.fail("the MLflow server did not start")


@pytest.fixture(autouse=True)
def _no_memory() -> Iterator[None]:
    """Remove all remembered addresses and sessions of other servers."""
    yield
    opening.forget()
    opening._sessions.clear()  # noqa: SLF001  # with its S3 server


def _stored(source: Path) -> str:
    return f"model{source.suffix}"


def test_each_format_is_read_as_a_local_one(registry: Registry) -> None:
    """By version, alias, run, logged model and its id."""
    roots = (f"{FIXTURES}/{version}" for version in range(1, 5))
    for root in (*roots, f"{FIXTURES}@champion", f"models:/{registry.logged}"):
        for source in MODELS:
            assert report(f"{root}/data/{_stored(source)}") == report(source), root


def test_the_models_of_a_version_are_found(registry: Registry) -> None:
    """
    The models in a version are found and its other files are skipped, and worker processes print
    nothing else.
    """
    ended = run_process(
        "inspect", f"{FIXTURES}/1", "--format", "json", "--jobs", "2", environment=os.environ
    )
    assert ended.code == 0
    assert {model["path"] for model in ended.json["models"]} == {
        f"{FIXTURES}/1/data/{_stored(source)}" for source in MODELS
    }
    assert all(line.startswith("note: Skipped") for line in ended.err.splitlines())
    matched = report(f"{FIXTURES}@champion/**/*.keras")
    assert matched == report(f"{FIXTURES}/1/data/model.keras")
    assert registry.environment["MLFLOW_TRACKING_URI"] not in ended.out


def test_audit_and_diff_read_values(registry: Registry) -> None:
    """``audit`` and ``diff`` read the values of a registered model as those of a local file."""
    del registry
    for source in MODELS:
        url = f"{FIXTURES}@champion/data/{_stored(source)}"
        assert run("diff", url, source).code == 0
        audits = [
            run("audit", "--weights", item, "--format", "json").json for item in (url, source)
        ]
        assert audits[0]["models"][0]["findings"] == audits[1]["models"][0]["findings"]


@pytest.mark.parametrize(
    "url",
    [
        f"{FIXTURES}/9",
        f"{FIXTURES}@none",
        "models:/none/1",
        f"models:/m-{'0' * 32}",
        f"{FIXTURES}/1/data/none.h5",
    ],
)
def test_model_missing_from_the_registry_is_reported_as_not_found(
    registry: Registry, url: str
) -> None:
    del registry
    ended = run("inspect", url, "--format", "json")
    assert ended.code == 3
    assert [failure["code"] for failure in ended.json["failures"]] == ["not-found"]


def test_a_server_that_stalls_ends_at_the_limit(registry: Registry) -> None:
    """A server that accepts connections without answering is an error after the time limit."""
    os.killpg(registry.process, signal.SIGSTOP)
    try:
        ended = run("inspect", f"{FIXTURES}/1", "--format", "json", "--limit", "remote-seconds=1")
    finally:
        os.killpg(registry.process, signal.SIGCONT)
    assert [failure["code"] for failure in ended.json["failures"]] == ["remote-timeout"]


def test_an_object_that_vanished_is_not_found(registry: Registry, bucket: str) -> None:
    """The registry still lists its version."""
    import boto3

    root = f"models:/{registry.spare}"
    assert run("inspect", f"{root}/data/model.h5").code == 0
    if registry.artifacts.is_dir():
        for path in registry.artifacts.glob(f"**/{registry.spare}/**/model.h5"):
            path.unlink()
    else:
        client = boto3.client("s3", endpoint_url=bucket)
        for found in client.list_objects_v2(Bucket=BUCKET)["Contents"]:
            if registry.spare in found["Key"] and found["Key"].endswith("model.h5"):
                client.delete_object(Bucket=BUCKET, Key=found["Key"])
    ended = run("inspect", f"{root}/data/model.h5", "--format", "json")
    assert [failure["code"] for failure in ended.json["failures"]] == ["not-found"]
