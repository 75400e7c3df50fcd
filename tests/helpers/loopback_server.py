"""Web servers on this machine, and the ranges of files that they send."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@contextmanager
def listening(respond: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """Answer requests on a free port of this machine, and give its address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each answer waits 40 ms

        def do_GET(self) -> None:  # the name that http.server looks for
            respond(self)

        do_HEAD = do_POST = do_GET  # noqa: N815  # as above

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Print nothing: clients close connections of which they have read enough."""

    with Server(("127.0.0.1", 0), Handler) as server:
        often = {"poll_interval": 0.01}  # in which it ends
        thread = threading.Thread(target=server.serve_forever, kwargs=often, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def requested_range(handler: BaseHTTPRequestHandler, size: int) -> tuple[int, int] | None:
    """Return the bytes of a file that a request is for; None if it is for the whole file."""
    asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
    return (int(asked[1]), min(int(asked[2]) + 1, size)) if asked else None


def send_part(handler: BaseHTTPRequestHandler, path: Path, start: int, end: int) -> int:
    """Send a part of a file after the headers, and return how many bytes were sent."""
    if handler.command != "GET":
        return 0
    with path.open("rb") as stream:
        stream.seek(start)
        return handler.wfile.write(stream.read(end - start))
