"""
A stand-in for the Hub of Hugging Face on this machine: the answers that its client needs to list
and read repositories.

Large files lie on a second server, as on the Hub, to which the first one redirects with a signed
URL. Both serve ranges, and record each request.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.helpers.loopback_server import listening, requested_range, send_part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path

_PAGE: Final = 3
"""Entries of one page of a listing; the Hub has 1,000."""

_LARGE: Final = 2_000
"""Bytes from which a file lies on the other server."""

_HASHED: Final = 2**13
"""Bytes of a file that its hash depends on."""

_API: Final = re.compile(
    r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(revision|tree|paths-info)/([^/]+)(?:/(.+))?)?"
)
_RESOLVE: Final = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class HubRequest:
    """One request."""

    is_large_file: bool
    """Whether it went to the server of large files."""

    method: str
    path: str
    authorization: str


@dataclass(kw_only=True)
class HubServer:
    """What the servers serve, how they fail, and what they have served."""

    root: Path
    """Has a directory ``models/OWNER/NAME/REVISION`` for each revision of a repository."""

    url: str = ""
    files_url: str = ""
    requests: list[HubRequest] = field(default_factory=list)
    sent: int = 0
    """Bytes of files."""

    private: dict[str, str] = field(default_factory=dict)
    """Repositories that only a token opens, with their tokens."""

    gated: set[str] = field(default_factory=set)
    """Repositories whose files nobody can read, although everyone can list them."""

    extra_names: list[str] = field(default_factory=list)
    """Further names that listings contain, for files that do not exist."""

    failures: list[HTTPStatus] = field(default_factory=list)
    """How the next requests of files fail."""

    stall: float = 0.0
    """Seconds before each answer that contains bytes of a file."""

    def respond(self, handler: BaseHTTPRequestHandler, *, is_large_file: bool) -> None:
        """Answer one request."""
        authorization = handler.headers.get("Authorization", "")
        self.requests.append(
            HubRequest(
                is_large_file=is_large_file,
                method=handler.command,
                path=handler.path,
                authorization=authorization,
            )
        )
        address = urlsplit(handler.path)
        if is_large_file:
            self._send_file(handler, self.root / unquote(address.path).lstrip("/"))
        elif match := _API.fullmatch(address.path):
            self._respond_to_api(handler, match, address.query)
        elif match := _RESOLVE.fullmatch(address.path):
            self._resolve(handler, match)
        else:
            _send_error(handler, HTTPStatus.NOT_FOUND, "")

    def _respond_to_api(
        self, handler: BaseHTTPRequestHandler, match: re.Match[str], query: str
    ) -> None:
        kind, name, action, revision, below = match.groups()
        home = self._revision(handler, f"{kind}/{name}", revision or "main")
        if home is None:
            return
        if action == "tree":
            self._send_tree(handler, home, unquote(below or ""), parse_qs(query))
        elif action == "paths-info":
            asked = parse_qs(handler.rfile.read(int(handler.headers["Content-Length"])).decode())
            places = [home / path for path in asked["paths"]]
            _send_json(handler, [_entry(home, place) for place in places if place.exists()])
        else:
            _send_json(handler, {"id": name, "sha": _digest(home), "tags": [], "siblings": []})

    def _revision(
        self, handler: BaseHTTPRequestHandler, repository: str, revision: str
    ) -> Path | None:
        """Return the directory of a revision; None after an error was sent."""
        home = self.root / repository
        token = self.private.get(repository)
        sent = handler.headers.get("Authorization", "")
        if not home.is_dir() or (token is not None and sent != f"Bearer {token}"):
            # what the Hub says of both, so that nobody learns which private repositories exist
            status = HTTPStatus.NOT_FOUND if sent else HTTPStatus.UNAUTHORIZED
            _send_error(handler, status, "RepoNotFound")
            return None
        result = home / unquote(revision)
        commits = {_digest(path): path for path in home.iterdir()}
        result = commits.get(revision, result)
        if not result.is_dir():
            _send_error(handler, HTTPStatus.NOT_FOUND, "RevisionNotFound")
            return None
        return result

    def _send_tree(
        self,
        handler: BaseHTTPRequestHandler,
        home: Path,
        below: str,
        query: dict[str, list[str]],
    ) -> None:
        top = home / below
        if not top.is_dir():
            _send_error(handler, HTTPStatus.NOT_FOUND, "EntryNotFound")
            return
        is_recursive = query.get("recursive") == ["true"]
        entries = [
            _entry(home, place) for place in sorted(top.glob("**/*" if is_recursive else "*"))
        ]
        entries += [
            {"type": "file", "path": name, "size": 9, "oid": "0"} for name in self.extra_names
        ]
        start = int(query.get("cursor", ["0"])[0])
        headers = {}
        if start + _PAGE < len(entries):
            address = f"{self.url}{urlsplit(handler.path).path}"
            more = f"recursive={str(is_recursive).lower()}&cursor={start + _PAGE}"
            headers["Link"] = f'<{address}?{more}>; rel="next"'
        _send_json(handler, entries[start : start + _PAGE], headers)

    def _resolve(self, handler: BaseHTTPRequestHandler, match: re.Match[str]) -> None:
        prefix, name, revision, below = match.groups()
        repository = f"{'datasets' if prefix else 'models'}/{name}"
        home = self._revision(handler, repository, revision)
        if home is None:
            return
        if repository in self.gated:
            _send_error(handler, HTTPStatus.FORBIDDEN, "GatedRepo")
            return
        if self.failures:
            _send_error(handler, self.failures.pop(0), "")
            return
        path = home / unquote(below)
        if not path.is_file():
            _send_error(handler, HTTPStatus.NOT_FOUND, "EntryNotFound")
        elif path.stat().st_size < _LARGE:
            self._send_file(handler, path)
        else:
            place = quote(path.relative_to(self.root).as_posix())
            handler.send_response(HTTPStatus.FOUND)
            handler.send_header("Location", f"{self.files_url}/{place}?Signature=signed-by-the-hub")
            handler.send_header("X-Linked-Size", str(path.stat().st_size))
            handler.send_header("X-Linked-Etag", f'"{_digest(path)}"')
            handler.send_header("Content-Length", "0")
            handler.end_headers()

    def _send_file(self, handler: BaseHTTPRequestHandler, path: Path) -> None:
        time.sleep(self.stall)
        size = path.stat().st_size
        asked = requested_range(handler, size)
        start, end = asked or (0, size)
        handler.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
        handler.send_header("Content-Length", str(end - start))
        handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        handler.send_header("ETag", f'"{_digest(path)}"')
        handler.end_headers()
        self.sent += send_part(handler, path, start, end)


@contextmanager
def hub_server(root: Path) -> Iterator[HubServer]:
    """Serve the repositories in a directory on two free ports of this machine."""
    hub = HubServer(root=root)
    with (
        listening(partial(hub.respond, is_large_file=False)) as hub.url,
        listening(partial(hub.respond, is_large_file=True)) as hub.files_url,
    ):
        yield hub


def _digest(path: Path) -> str:
    """Return a hash of a file, or of all files in a directory and their names."""
    hashed = hashlib.sha1(usedforsecurity=False)
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        hashed.update(file.relative_to(path).as_posix().encode())
        if file.is_file():
            with file.open("rb") as stream:  # sparse files have 100 GB
                hashed.update(stream.read(_HASHED))
            hashed.update(str(file.stat().st_size).encode())
    return hashed.hexdigest()


def _entry(home: Path, place: Path) -> dict[str, Any]:
    name = place.relative_to(home).as_posix()
    if place.is_dir():
        return {"type": "directory", "path": name, "size": 0, "oid": _digest(place)}
    size = place.stat().st_size
    entry = {"type": "file", "path": name, "size": size, "oid": _digest(place)}
    if size >= _LARGE:
        entry["lfs"] = {"oid": _digest(place) * 2, "size": size, "pointerSize": 130}
    return entry


def _send_json(
    handler: BaseHTTPRequestHandler, content: object, headers: dict[str, str] | None = None
) -> None:
    data = json.dumps(content).encode()
    handler.send_response(HTTPStatus.OK)
    for name, value in {**(headers or {}), "Content-Type": "application/json"}.items():
        handler.send_header(name, value)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def _send_error(handler: BaseHTTPRequestHandler, status: HTTPStatus, code: str) -> None:
    handler.send_response(status)
    if code:
        handler.send_header("X-Error-Code", code)
        handler.send_header("X-Error-Message", "a message of the server")
    handler.send_header("Content-Length", "0")
    handler.end_headers()
