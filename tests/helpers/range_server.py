"""
A web server of a directory on this machine that serves ranges, and counts what it serves.

An S3 client reads objects from it as well, because both ask for ``/BUCKET/KEY`` alike.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tests.helpers.loopback_server import listening, requested_range, send_part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path


@dataclass(kw_only=True)
class RangeServer:
    """What a server serves, how it fails, and what it has served."""

    root: Path
    url: str = ""
    requests: list[str] = field(default_factory=list)
    """Methods and paths, with the query."""

    sent: int = 0
    """Bytes of all bodies."""

    ranges: bool = True
    """Whether it serves ranges."""

    failures: list[HTTPStatus] = field(default_factory=list)
    """How the next requests fail."""

    healthy: int = 0
    """Requests before the first of them fails."""

    stall: float = 0.0
    """Seconds before each answer."""

    changing: bool = False
    """Whether each answer has another etag."""

    etag: str | None = None
    """The etag of every file, empty for none; by default, each file has one."""

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Answer one request."""
        self.requests.append(f"{handler.command} {handler.path}")
        time.sleep(self.stall)
        if self.failures and self.healthy < len(self.requests):
            handler.send_error(self.failures.pop(0))
            return
        path = self.root / unquote(urlsplit(handler.path).path).lstrip("/")
        if not path.is_file():
            handler.send_error(HTTPStatus.NOT_FOUND)
            return
        size = path.stat().st_size
        asked = requested_range(handler, size) if self.ranges else None
        start, end = asked or (0, size)
        handler.send_response(HTTPStatus.PARTIAL_CONTENT if asked else HTTPStatus.OK)
        handler.send_header("Content-Length", str(end - start))
        own = f'"{len(self.requests) if self.changing else size}"'
        if etag := own if self.etag is None else self.etag:
            handler.send_header("ETag", etag)
        if self.ranges:
            handler.send_header("Accept-Ranges", "bytes")
            handler.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
        handler.end_headers()
        self.sent += send_part(handler, path, start, end)


@contextmanager
def range_server(root: Path) -> Iterator[RangeServer]:
    """Serve a directory on a free port of this machine."""
    server = RangeServer(root=root)

    with listening(server.respond) as server.url:
        yield server
