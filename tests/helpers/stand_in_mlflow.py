"""
A server on this machine that answers as an MLflow server does, and misbehaves on request.

``tests/formats/test_mlflow.py`` asks a real one.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from tests.helpers.loopback_server import listening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

API: Final = "/api/2.0/mlflow"
ARTIFACTS: Final = "/api/2.0/mlflow-artifacts/artifacts"
HOME: Final = "mlflow-artifacts:/home"
"""The artifacts in the server's directory."""

NAME: Final = "resnet"
ALIAS: Final = "champion"
LOGGED: Final = f"m-{'0a' * 16}"
RUN: Final = "run1"


@dataclass(kw_only=True)
class StandInMlflow:
    """What a server answers, how it fails, and what it was asked."""

    root: Path
    url: str = ""
    location: str = HOME
    """What the registry has as the place of version 1."""

    locations: dict[str, str] = field(default_factory=lambda: {LOGGED: HOME, RUN: HOME})
    """Places of logged models and runs."""

    requests: list[str] = field(default_factory=list)
    """Methods and paths, with the query."""

    authorizations: set[str] = field(default_factory=set)
    sent: int = 0
    """Bytes of all bodies."""

    ranges: bool = True
    """Whether it serves ranges; else it serves whole files, as for artifacts in a bucket."""

    etags: str = "same"
    """Whether two ranges have the ``same`` etag, one ``each``, or ``none``."""

    stable_ranges: int = 10**9
    """Ranges before the etags change."""

    ranges_sent: int = 0
    failures: list[HTTPStatus] = field(default_factory=list)
    """How the next requests fail."""

    healthy: int = 0
    """Requests before the first of them fails."""

    redirect: str = ""
    """The server that all requests are redirected to."""

    stall: float = 0.0
    """Seconds before each answer."""

    answers: dict[str, bytes] = field(default_factory=dict)
    """Bodies in place of the usual ones, by the path."""

    padding: int = 0
    """Bytes after the end of each file; with a negative one, so many are missing."""

    swap: bytes = b""
    """What whole files have in place of their content."""

    broken: bool = False
    """Whether the connection ends in the middle of each file."""

    def files(self, place: str) -> list[dict[str, Any]]:
        """Return what the server lists of a directory."""
        directory = self.root / place.removeprefix("home").strip("/")
        if not directory.is_dir():
            return []
        return [
            {"path": path.name, "is_dir": True}
            if path.is_dir()
            else {"path": path.name, "is_dir": False, "file_size": str(path.stat().st_size)}
            for path in sorted(directory.iterdir())
        ]

    def answer(self, path: str, query: dict[str, str]) -> Any:
        """Return what the server answers as JSON; None of what it does not know."""
        name, is_known = query.get("name"), query.get("name") == NAME
        if path == f"{API}/registered-models/alias" and is_known and query["alias"] == ALIAS:
            return {"model_version": {"name": name, "version": "1"}}
        if (
            path == f"{API}/model-versions/get-download-uri"
            and is_known
            and query["version"] == "1"
        ):
            return {"artifact_uri": self.location}
        if path == f"{API}/runs/get" and query["run_id"] in self.locations:
            return {"run": {"info": {"artifact_uri": self.locations[query["run_id"]]}}}
        if path.startswith(f"{API}/logged-models/") and path.rpartition("/")[2] in self.locations:
            return {"model": {"info": {"artifact_uri": self.locations[path.rpartition("/")[2]]}}}
        if path == ARTIFACTS:
            return {"files": self.files(query["path"])}
        return None

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        self.requests.append(f"{handler.command} {handler.path}")
        self.authorizations.add(handler.headers.get("Authorization", ""))
        time.sleep(self.stall)
        parts = urlsplit(handler.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        if self.failures and self.healthy < len(self.requests):
            handler.send_error(self.failures.pop(0))
        elif self.redirect:
            handler.send_response(HTTPStatus.TEMPORARY_REDIRECT)
            handler.send_header("Location", f"{self.redirect}{handler.path}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
        elif parts.path in self.answers:
            self._send(handler, self.answers[parts.path], {})
        elif parts.path.startswith(f"{ARTIFACTS}/"):
            self._send_file(handler, unquote(parts.path.removeprefix(f"{ARTIFACTS}/")))
        elif (found := self.answer(parts.path, query)) is not None:
            self._send(handler, json.dumps(found).encode(), {})
        else:
            handler.send_error(HTTPStatus.NOT_FOUND)

    def _send_file(self, handler: BaseHTTPRequestHandler, place: str) -> None:
        path = self.root / place.removeprefix("home").strip("/")
        if not path.is_file():
            handler.send_error(HTTPStatus.NOT_FOUND)
            return
        data = path.read_bytes()
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        if asked is None or not self.ranges:
            data = self.swap or data
            data = data[: self.padding] if self.padding < 0 else data + b"\0" * self.padding
            self._send(handler, data, {})
            return
        self.ranges_sent += 1
        start, end = int(asked[1]), min(int(asked[2]) + 1, len(data))
        headers = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
        if self.etags != "none":
            is_new = self.etags == "each" or self.ranges_sent > self.stable_ranges
            headers["ETag"] = f'"{len(self.requests) if is_new else len(data)}"'
        self._send(handler, data[start:end], headers)

    def _send(self, handler: BaseHTTPRequestHandler, body: bytes, headers: dict[str, str]) -> None:
        status = HTTPStatus.PARTIAL_CONTENT if "Content-Range" in headers else HTTPStatus.OK
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        if self.broken and f"{ARTIFACTS}/" in handler.path:
            body = body[: len(body) // 2]
            handler.close_connection = True
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        block = 2**16
        for start in range(0, len(body), block):
            handler.wfile.write(body[start : start + block])
            self.sent += len(body[start : start + block])


@contextmanager
def stand_in_mlflow(root: Path) -> Iterator[StandInMlflow]:
    """Serve a directory as the files of version 1 of a model, on a free port of this machine."""
    server = StandInMlflow(root=root)

    with listening(server.respond) as server.url:
        yield server
