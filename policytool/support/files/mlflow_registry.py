"""
Where the files of a registered model are: in the artifacts of an MLflow server, or in a bucket.

What a registry names may come from anybody who can register a model. It leads to buckets, and to
the artifacts of the server that the user has set; it leads neither to files of this machine nor to
other servers, which would receive the user's credentials.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from policytool.support.errors import ModelFileError, UsageError
from policytool.support.files import remote_path
from policytool.support.files.mlflow_artifacts import Artifacts
from policytool.support.files.mlflow_server import servers
from policytool.support.files.remote_requests import http_status, request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.support.files.mlflow_server import MlflowServer
    from policytool.support.files.remote_path import RemotePath
    from policytool.support.text.jsontext import Json

_API: Final = "/api/2.0/mlflow"
_BUCKETS: Final = {"s3": "s3", "gs": "gs", "abfss": "abfs"}
"""Protocols of buckets in MLflow, as policytool names them; adlfs always uses TLS."""

_ARTIFACTS: Final = "mlflow-artifacts"
_ARTIFACT_PLACE: Final = re.compile(r"(?://([^/]*))?(/.*)", re.DOTALL)
_RUN: Final = re.compile(r"runs:/+([^/]+)/?(.*)", re.DOTALL)
_LOGGED_MODEL: Final = re.compile(r"(?:models:/+)?(m-[0-9a-f]{32})/?(.*)", re.DOTALL)
_MOST_STEPS: Final = 4
"""From a version to a model that was logged, or to a run, and from there to a place."""

_UNKNOWN: Final = frozenset({400, 404})
"""What servers answer for a version, and for an alias, that does not exist."""


def find_files(path: RemotePath) -> RemotePath | Artifacts:
    """
    Return where the files of a registered model are.

    :raises ModelFileError: if the server does not say it, or names a place that is not read.
    :raises FileNotFoundError: if there is no such model, version or alias.
    """
    registry, tracking = servers(path)
    location = request(path, lambda: _location(registry, tracking))
    protocol, _, place = location.partition(":")
    if protocol == _ARTIFACTS:
        home = _ARTIFACT_PLACE.fullmatch(place)
        if home is not None and home[1] in {None, "", _host(tracking)}:
            return Artifacts(tracking, home[2].strip("/"), location)
        raise _not_read(path, "on another server, which would receive your credentials")
    if protocol not in _BUCKETS:
        on_disk = protocol in {"file", location}
        raise _not_read(path, "on the disk of the server" if on_disk else "in another place")
    try:
        return remote_path.parse(f"{_BUCKETS[protocol]}:{place}")
    except UsageError:
        raise _not_read(path, "at an invalid address") from None


def _host(server: MlflowServer) -> str:
    return urlsplit(server.address).netloc.rpartition("@")[2]


def _location(registry: MlflowServer, tracking: MlflowServer) -> str:
    """Return the address of a model's directory, after all MLflow names in it are resolved."""
    try:
        place = _registered_location(registry)
        for _ in range(_MOST_STEPS):
            if match := _RUN.fullmatch(place):
                run = tracking.answer(f"{_API}/runs/get", {"run_id": match[1]})
                place = f"{_text(tracking, run, 'run', 'info', 'artifact_uri')}/{match[2]}"
            elif match := _LOGGED_MODEL.fullmatch(place):
                model = tracking.answer(f"{_API}/logged-models/{match[1]}", {})
                base = _text(tracking, model, "model", "info", "artifact_uri")
                place = f"{base}/{match[2]}"
            else:
                return place
    except Exception as error:
        if http_status(error) in _UNKNOWN:
            raise FileNotFoundError from error
        raise
    raise registry.unexpected_answer()


def _registered_location(registry: MlflowServer) -> str:
    """Return the location of a model's files in the registry."""
    name = registry.path.registered
    if _LOGGED_MODEL.fullmatch(name):
        return name
    if "@" in name:
        model, _, alias = name.rpartition("@")
        answer = registry.answer(f"{_API}/registered-models/alias", {"name": model, "alias": alias})
        version = _text(registry, answer, "model_version", "version")
    else:
        model, _, version = name.rpartition("/")
    values = {"name": model, "version": version}
    answer = registry.answer(f"{_API}/model-versions/get-download-uri", values)
    return _text(registry, answer, "artifact_uri")


def _text(server: MlflowServer, answer: Mapping[str, Json], *keys: str) -> str:
    """Return the text in an answer under nested keys, the outermost first."""
    node: Json = dict(answer)
    for key in keys:
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, str) or not node:
        raise server.unexpected_answer()
    return node


def _not_read(path: RemotePath, place: str) -> ModelFileError:
    return ModelFileError(
        path.shown,
        "remote-location",
        f"is not readable: according to the registry, its files are {place}; policytool reads "
        "files that the MLflow server serves (mlflow-artifacts:), or that are in a bucket (s3:, "
        "gs:, abfss:)",
    )
