"""
Registered models of an MLflow server: the locations of their files, and the files that the server
delivers.

Anyone who can register a model can choose its location. Supported locations are buckets, and the
artifacts of the server in the user's settings. Local files are rejected, and so are other servers,
which would receive the user's credentials.

Requests use the addresses, credentials and connections of MLflow's client. The client's own
functions are not used: they repeat a request for minutes, read answers of any size, and may create
a database in the working directory.

Servers deliver ranges of files on their own disk. Most servers deliver files in a bucket only as a
whole, and some copy the whole file for each range.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import tempfile
import warnings
from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import quote, urlsplit

from fsspec import AbstractFileSystem

from policytool.support import limits
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.files import remote_path
from policytool.support.files.random_access import positioned_read
from policytool.support.files.remote_requests import changed, http_status, request
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.support.files.remote_path import RemotePath
    from policytool.support.text.jsontext import Json


_QUIET: Final = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_DISABLE_AGENT_HINT": "1"}
"""
Settings while MLflow is imported, which otherwise sends usage data, writes to the user's home, and
may print hints.
"""

_WEB: Final = ("http://", "https://")
_BLOCK: Final = 2**20
_GRACE: Final = 5
"""The seconds until the connection of a finished request is closed."""


class MlflowServer:
    """An MLflow server, and the model that is read from it, which error messages name."""

    def __init__(self, path: RemotePath, address: str) -> None:
        self.path = path
        self.address = address

    def answer(self, endpoint: str, values: Mapping[str, str]) -> dict[str, Json]:
        """
        Return the JSON object in the server's answer.

        :raises ModelFileError: if the answer is not a JSON object, or is too large.
        :raises Exception: of requests or MLflow, if the request fails.
        """
        most = limits.JSON_BYTES.value + 1
        with closing(self.open(endpoint, values)) as response:
            data = read_body(response, most)
        try:
            document, _ = jsontext.parse(data)
        except jsontext.JsonError as error:
            if error.code == "json-limit":
                message = f"is not readable: the answer of the MLflow server {error}"
                raise ModelFileError(self.path.shown, "remote-limit", message) from None
            raise self.unexpected_answer() from None
        if not isinstance(document, dict):
            raise self.unexpected_answer()
        return document

    def open(
        self,
        endpoint: str,
        values: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:  # noqa: ANN401  # a response of requests, which ships no types
        """
        Return a response whose body was not read yet.

        :raises Exception: of requests or MLflow, if the request fails.
        """
        from mlflow.utils.credentials import get_default_host_creds
        from mlflow.utils.rest_utils import http_request

        response = http_request(
            get_default_host_creds(self.address),
            endpoint,
            "GET",
            params=values,
            extra_headers={"Accept-Encoding": "identity", **(headers or {})},
            stream=True,
            max_retries=0,  # policytool repeats it
            raise_on_status=False,
            timeout=limits.REMOTE_SECONDS.value + _GRACE,
        )
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            response.close()
            response.raise_for_status()
        return response

    def unexpected_answer(self) -> ModelFileError:
        """Return the error for an answer that MLflow servers do not send."""
        return ModelFileError(
            self.path.shown,
            "remote-failed",
            "is not readable: the answer of the server is not one of an MLflow server; check "
            "MLFLOW_TRACKING_URI",
        )


def servers(path: RemotePath) -> tuple[MlflowServer, MlflowServer]:
    """
    Return the server of the registry and the server of runs and artifacts in MLflow's settings.

    :raises ModelFileError: if MLflow cannot be imported, or its settings have no server.
    """
    _import_mlflow(path)
    import mlflow

    addresses = mlflow.get_registry_uri(), mlflow.get_tracking_uri()
    if not all(address.startswith(_WEB) for address in addresses):
        raise ModelFileError(
            path.shown,
            "remote-location",
            "is not readable: there is no address of an MLflow server; set MLFLOW_TRACKING_URI to "
            "one, such as http://HOST:5000",
        )
    registry, tracking = (MlflowServer(path, address) for address in addresses)
    return registry, tracking


def read_body(response: Any, count: int) -> bytes:  # noqa: ANN401  # as above
    """Return the next bytes of a response, fewer at its end."""
    blocks, remaining = [], count
    while remaining and (block := response.raw.read(min(remaining, _BLOCK))):
        blocks.append(block)
        remaining -= len(block)
    return b"".join(blocks)


def _import_mlflow(path: RemotePath) -> None:
    """
    Import MLflow without its messages and its telemetry.

    :raises ModelFileError: if the import fails.
    """
    if "mlflow" in sys.modules:
        return
    before = {name: os.environ.get(name) for name in _QUIET}
    os.environ.update(_QUIET)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import mlflow.utils.rest_utils  # noqa: F401
    except Exception as error:  # incompatible versions of its packages raise any exception
        raise ModelFileError(
            path.shown,
            "remote-package",
            f"requires the package mlflow, whose import ends with {type(error).__name__}; install "
            "it again with: pip install 'policytool[mlflow]'",
        ) from error
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


Entry = dict[str, Any]

_ARTIFACTS_API: Final = "/api/2.0/mlflow-artifacts/artifacts"
_ARTIFACT_BLOCK: Final = 8 * 2**20
_UP: Final = frozenset({"", ".", ".."})
_SIZE: Final = re.compile(r"[0-9]{1,18}")


class Artifacts(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """The files of one model on an MLflow server, by their paths in the model."""

    cachable = False

    def __init__(self, server: MlflowServer, home: str, version: str) -> None:
        super().__init__()
        self.server = server
        self.has_ranges = True
        """Whether ranges may be useful; False after a response that shows the contrary."""

        self._home = home
        self._version = version
        self._listings: dict[str, dict[str, Entry]] = {}
        self._listed = 0
        self._downloaded = 0

    def info(self, path: str, **_: object) -> Entry:
        """
        Return the entry of a path.

        :raises FileNotFoundError: if the server lists no such name.
        """
        place = path.strip("/")
        if not place:
            return {"name": "", "type": "directory", "size": 0, "ETag": self._version}
        entry = self._listing(place.rpartition("/")[0]).get(place)
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return entry

    def ls(self, path: str, detail: bool = True, **_: object) -> list[Any]:  # noqa: FBT001, FBT002  # fsspec's signature
        """
        Return the entries, or only the names, of a directory.

        :raises FileNotFoundError: if the server lists no such directory.
        """
        entries = self._listing(path.strip("/"))
        return list(entries.values()) if detail else list(entries)

    def place(self, path: str) -> str:
        """Return the server's name of a path."""
        return f"{self._home}/{path}".strip("/")

    def reader(
        self, path: RemotePath, size: int, own: Callable[[BinaryIO], BinaryIO]
    ) -> Callable[[int, int], bytes]:
        """
        Return the function that reads the bytes of a file between two offsets.

        :param own: receives a temporary file, and closes it later
        """
        return ArtifactReader(self, path, size, own).read

    def open_response(self, path: str, headers: Mapping[str, str]) -> Any:  # noqa: ANN401  # as in MlflowServer.open
        """Return a response with a file or a range of it."""
        return self.server.open(f"{_ARTIFACTS_API}/{quote(self.place(path))}", headers=headers)

    def count_download(self, path: RemotePath, size: int) -> None:
        """
        Count the bytes of a file that is downloaded.

        :raises ModelFileError: if they exceed the limit.
        """
        self._downloaded += size
        if excess := limits.REMOTE_FILE_BYTES.exceeded_message(self._downloaded):
            raise ModelFileError(
                path.shown,
                "remote-limit",
                "is not readable: its server delivers only whole files, and the download would "
                f"have {excess}",
            )

    def _listing(self, place: str) -> dict[str, Entry]:
        """
        Return the entries of a directory by name, from the cache if they were requested before.
        """
        if place not in self._listings:
            files = self.server.answer(_ARTIFACTS_API, {"path": self.place(place)}).get("files", [])
            if not isinstance(files, list):
                raise self.server.unexpected_answer()
            self._listed += len(files)
            if excess := limits.REMOTE_NAMES.exceeded_message(self._listed):
                message = f"is a model of {excess}"
                raise ModelFileError(self.server.path.shown, "remote-limit", message)
            entries = [self._entry(place, file) for file in files]
            self._listings[place] = {entry["name"]: entry for entry in entries}
        return self._listings[place]

    def _entry(self, place: str, file: Json) -> Entry:
        """
        Return an entry of the server in the form of fsspec.

        :raises ModelFileError: if its name may lead out of the directory, or its size is invalid.
        """
        values = file if isinstance(file, dict) else {}
        name = values.get("path")
        size = str(values.get("file_size", 0))  # the server omits the size of an empty file
        if not isinstance(name, str) or not _is_name(name) or not _SIZE.fullmatch(size):
            raise self.server.unexpected_answer()
        return {
            "name": f"{place}/{name}".lstrip("/"),
            "type": "directory" if values.get("is_dir") is True else "file",
            "size": int(size),
            "ETag": self._version,
        }


class ArtifactReader:
    """
    The bytes of one file: in ranges if the server delivers them, otherwise from a temporary file.

    Only equal etags show that two ranges belong to the same version. If the second range has
    another etag, the file is downloaded and compared with the first range.
    """

    def __init__(
        self, artifacts: Artifacts, path: RemotePath, size: int, own: Callable[[BinaryIO], BinaryIO]
    ) -> None:
        self._artifacts = artifacts
        self._path = path
        self._size = size
        self._own = own
        self._etag: str | None = None
        self._first: tuple[int, bytes] | None = None
        """The start and the bytes of the only range that was read so far."""

        self._file: BinaryIO | None = None

    def read(self, start: int, stop: int) -> bytes:
        """
        Return the bytes between two offsets.

        :raises ModelFileError: if the server does not deliver them.
        :raises FileNotFoundError: if the file no longer exists.
        """
        if self._file is None and self._artifacts.has_ranges:
            data = request(self._path, lambda: self._range(start, stop))
            if data is not None:
                return data
            self._artifacts.has_ranges = False
        if self._file is None:
            self._file = self._download()
        return positioned_read(self._file)(stop - start, start)

    def _range(self, start: int, stop: int) -> bytes | None:
        """Return the bytes of a range; None if the file has to be downloaded."""
        headers = {"Range": f"bytes={start}-{stop - 1}"}
        with closing(self._artifacts.open_response(self._path.location, headers)) as response:
            etag = response.headers.get("ETag")
            is_range = response.status_code == HTTPStatus.PARTIAL_CONTENT and (
                response.headers.get("Content-Range") == f"bytes {start}-{stop - 1}/{self._size}"
            )
            if is_range and etag and etag == self._etag:
                self._first = None
                return read_body(response, stop - start)
            if self._etag is not None and self._first is None:
                raise changed(self._path)
            if not is_range or not etag or self._etag is not None:
                return None
            data = read_body(response, stop - start)
            self._etag, self._first = etag, (start, data)
            return data

    def _download(self) -> BinaryIO:
        """Return the complete file as an unnamed temporary file."""
        self._artifacts.count_download(self._path, self._size)
        place = self._path.location
        file = self._own(tempfile.TemporaryFile())  # noqa: SIM115  # closed with the session's files
        with closing(
            request(self._path, lambda: self._artifacts.open_response(place, {}))
        ) as response:
            remaining = self._size + 1  # a longer file is not the listed one
            while remaining and (
                block := self._next_block(response, min(remaining, _ARTIFACT_BLOCK))
            ):
                remaining -= len(block)
                _write(self._path, file, block)
        start, data = self._first or (0, b"")
        if remaining != 1 or positioned_read(file)(len(data), start) != data:
            raise changed(self._path)
        return file

    def _next_block(self, response: Any, count: int) -> bytes:  # noqa: ANN401  # as above
        from urllib3.exceptions import HTTPError

        def act() -> bytes:
            try:
                return read_body(response, count)
            except (HTTPError, OSError):  # a response cannot be read again
                raise ModelFileError(
                    self._path.shown,
                    "remote-unavailable",
                    "is not readable: the connection to the server failed during the download; "
                    "run the command again",
                ) from None

        return request(self._path, act)


def _write(path: RemotePath, file: BinaryIO, block: bytes) -> None:
    """Write a block to a temporary file, or raise an error about its directory."""
    try:
        file.write(block)
        file.flush()
    except OSError as error:
        raise ModelFileError(
            path.shown,
            "unreadable",
            f"cannot be downloaded to a temporary file: {error.strerror}; set TMPDIR to a "
            "directory with enough space",
        ) from error


def _is_name(name: str) -> bool:
    """Return whether a name is inside its directory, and can be sent to the server."""
    is_text = not any("\ud800" <= character <= "\udfff" for character in name)
    return is_text and name not in _UP and not {"/", "\0"} & set(name)


_API: Final = "/api/2.0/mlflow"
_BUCKETS: Final = {"s3": "s3", "gs": "gs", "abfss": "abfs"}
"""Protocols of buckets in MLflow, as policytool names them; adlfs always uses TLS."""

_ARTIFACTS: Final = "mlflow-artifacts"
_ARTIFACT_PLACE: Final = re.compile(r"(?://([^/]*))?(/.*)", re.DOTALL)
_RUN: Final = re.compile(r"runs:/+([^/]+)/?(.*)", re.DOTALL)
_LOGGED_MODEL: Final = re.compile(r"(?:models:/+)?(m-[0-9a-f]{32})/?(.*)", re.DOTALL)
_MOST_STEPS: Final = 4
"""The maximum steps from a version, through a logged model or a run, to a location."""

_UNKNOWN: Final = frozenset({400, 404})
"""The HTTP statuses for a version or an alias that does not exist."""


def find_files(path: RemotePath) -> RemotePath | Artifacts:
    """
    Return the location of a registered model's files.

    :raises ModelFileError: if the server returns no location or an unsupported location.
    :raises FileNotFoundError: if the model, version or alias does not exist.
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
