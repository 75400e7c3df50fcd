"""
Files that an MLflow server serves: their names, and their bytes.

Servers deliver ranges of files that are on their own disk. Of files in a bucket, most deliver only
the whole, and some copy the whole for each range.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from contextlib import closing
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import quote

from fsspec import AbstractFileSystem

from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files.mlflow_server import read_body
from policytool.support.files.random_access import positioned_read
from policytool.support.files.remote_requests import changed, request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policytool.support.files.mlflow_server import MlflowServer
    from policytool.support.files.remote_path import RemotePath
    from policytool.support.text.jsontext import Json

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
        """Whether no answer so far has shown that ranges are no use."""

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
        """Return how the server names a path."""
        return f"{self._home}/{path}".strip("/")

    def reader(
        self, path: RemotePath, size: int, own: Callable[[BinaryIO], BinaryIO]
    ) -> Callable[[int, int], bytes]:
        """
        Return what reads a file from a place up to another.

        :param own: takes a temporary file, and closes it in the end
        """
        return ArtifactReader(self, path, size, own).read

    def open_response(self, path: str, headers: Mapping[str, str]) -> Any:  # noqa: ANN401  # as in MlflowServer.open
        """Return a response that delivers a file, or a range of it."""
        return self.server.open(f"{_ARTIFACTS_API}/{quote(self.place(path))}", headers=headers)

    def count_download(self, path: RemotePath, size: int) -> None:
        """
        Count the bytes of a file that is downloaded.

        :raises ModelFileError: if they are too many.
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
    The bytes of one file: by ranges if the server delivers them, and else of a temporary file.

    Only an etag that stays the same shows that two ranges are of one version. If the second range
    has another one, the file is downloaded, and compared with the first range.
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
        """The only range that was read so far, and where it starts."""

        self._file: BinaryIO | None = None

    def read(self, start: int, stop: int) -> bytes:
        """
        Return the bytes from a place up to another.

        :raises ModelFileError: if the server does not deliver them.
        :raises FileNotFoundError: if the file is gone.
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
        """Return the whole file as a temporary file without a name."""
        self._artifacts.count_download(self._path, self._size)
        place = self._path.location
        file = self._own(tempfile.TemporaryFile())  # noqa: SIM115  # closed with the session's files
        with closing(
            request(self._path, lambda: self._artifacts.open_response(place, {}))
        ) as response:
            left = self._size + 1  # a longer file is not the listed one
            while left and (block := self._next_block(response, min(left, _ARTIFACT_BLOCK))):
                left -= len(block)
                _write(self._path, file, block)
        start, data = self._first or (0, b"")
        if left != 1 or positioned_read(file)(len(data), start) != data:
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
    """Return whether a name stays in its directory, and can be sent back."""
    is_text = not any("\ud800" <= character <= "\udfff" for character in name)
    return is_text and name not in _UP and not {"/", "\0"} & set(name)
