"""
Paths of files that another machine has, as URLs: their parts, how reports show them, and what
servers tell about them.

Nothing here asks a server; :mod:`policytool.support.files.opening` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote

from policytool.support.errors import UsageError
from policytool.support.text.phrases import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

_URL: Final = re.compile(
    r"(models(?=:/(?!/))|[A-Za-z][A-Za-z0-9+.-]+(?=://)):/{1,2}(.*)", re.DOTALL
)
"""
Two letters at least, because ``C:\\`` is a drive; MLflow writes only one slash after ``models:``.
"""

PACKAGES: Final = {
    "s3": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
    "https": "aiohttp",
    "memory": "fsspec",
    "models": "mlflow",
    "zip": "fsspec",
}
"""
The protocols that are read, with the package that each needs beside fsspec.

The other protocols of fsspec start programs (``ssh``, ``git``), run what a file says
(``reference``), write caches, or reach more of this machine than its own paths do.
"""

ZIP: Final = "zip"
MODELS: Final = "models"
HUB: Final = "hf"
_WEB: Final = frozenset({"http", "https"})
AZURE: Final = frozenset({"az", "abfs"})
"""``abfs://CONTAINER@ACCOUNT...``: what stands before the ``@`` is no user."""

GOOGLE: Final = frozenset({"gs", "gcs"})
_WITHOUT_USER: Final = frozenset({*AZURE, MODELS, ZIP})
_BUCKETS: Final = PACKAGES.keys() - _WEB
"""Protocols whose first part may contain no colon, so that one is followed by a password."""

_REGISTERED: Final = re.compile(
    r"models://([^/*?[]+@[^/*?[]+|m-[0-9a-f]{32}|[^/*?[]+/[0-9]+)(?=/|$)"
)
"""A model of an MLflow registry: by an alias, by its own id, or by a version."""

_GLOB: Final = frozenset("*?[")
_USER: Final = re.compile(r"^[^/@]*@")
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,30}):([/\\]+)")
"""As in a URL, or in a path that was made of one, which has fewer slashes."""

_CHAINED: Final = re.compile(
    rf"(?:::|/)(?=(?:{'|'.join(PACKAGES)}|file|ftp|simplecache):/)", re.IGNORECASE
)
"""Before another URL; other words before a colon may be a part of a password."""

_MOST_CHAINED: Final = 8
"""URLs in a chain that reports show; those that are read have two."""

_HOST: Final = re.compile(
    r"(\[[0-9A-Fa-f:.]+\]|localhost|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+)(:[0-9]+)?"
)
"""What stands between ``//`` and ``/`` and is surely no part of a password with a slash."""

_PORT: Final = re.compile(r"[^:]+:[0-9]+")
_HAS_PASSWORD: Final = re.compile(r"[^:/]*:(?![0-9]+(/|$))")
_HIDDEN: Final = "..."
"""What reports show of a URL that may be a password from its beginning on."""

_URL_IN_TEXT: Final = re.compile(rf"{_SCHEME.pattern}[^\s'\"`]*(?<!:)")
"""Without a colon at the end, which belongs to the sentence."""


def is_url(text: str) -> bool:
    """Return whether a text is a URL and not a local path."""
    return _URL.match(text) is not None


def _has_known_protocol(text: str) -> bool:
    """Return whether a text is a URL that policytool reads."""
    match = _URL.match(text)
    return match is not None and match[1].lower() in PACKAGES


def without_secrets(path: str) -> str:
    """
    Return a path or URL as reports show it: without a user, a password, a query and a fragment.

    This also holds for text that only resembles a URL, such as one after a blank or a quote. If a
    password may contain a slash, everything up to the last ``@`` is removed, and all if it may
    contain the beginning of a query.
    """
    parts: list[str] = []
    for _ in range(_MOST_CHAINED):
        match = _SCHEME.search(path)
        if match is None:
            return "".join([*parts, _local_archive(path) if parts else path])
        protocol = match[1].lower() if is_url(path) else match[1]
        slashes = "/" if protocol == MODELS else match[2]
        parts.append(f"{path[: match.start()]}{protocol}:{slashes}")
        place, separator, path = _divide(protocol.lower(), path[match.end() :])
        safe_place = _place(protocol.lower(), place)
        parts += (safe_place, separator)
        if not separator:
            break
        if safe_place != place and not _has_known_protocol(path):
            # the separator may be in a password, and what follows it the rest of the password
            return "".join([*parts, _HIDDEN])
    return "".join(parts)


def check_local(path: str, before: str) -> None:
    """
    Make sure that a path is not a URL.

    :param before: the beginning of the message, up to the path, such as ``--cache`` and a space
    :raises UsageError: for a URL, and for text that contains one: later messages may show a part of
        it that does not resemble a URL. The message shows the URL without its credentials.
    """
    safe_path = without_secrets(path)
    if is_url(path) or safe_path != path:
        raise UsageError(f"{before}{safe_path} is a URL; specify a local path")


def redacted(text: str) -> str:
    """Return a message whose URLs are as reports show them."""
    return _URL_IN_TEXT.sub(lambda match: without_secrets(match[0]), text)


def _divide(protocol: str, rest: str) -> tuple[str, str, str]:
    """
    Return the rest of a URL up to another URL or an archive, the separator, and what follows it.
    """
    if protocol == ZIP:
        return rest.partition("::")
    chained = _CHAINED.search(_QUERY.sub("", rest))
    if chained is None:
        return rest, "", ""
    return rest[: chained.start()], chained[0], rest[chained.end() :]


def _place(protocol: str, place: str) -> str:
    """Return what a URL has after its protocol, as reports show it."""
    own = _QUERY.sub("", place)
    hidden = place.removeprefix(own)
    authority, slash, rest = own.partition("/")
    host = authority.rpartition("@")[2]
    has_colon = ":" in unquote(host)
    is_certain = not has_colon if protocol in _BUCKETS else _HOST.fullmatch(host) is not None
    has_at = "@" in rest or "@" in hidden
    if (
        (has_colon and not is_certain and _PORT.fullmatch(host) is None)
        or (has_at and ("@" in authority or not is_certain or _SCHEME.search(rest) is not None))
        or ("@" in hidden and not slash)
    ):  # the password may contain the first slash, question mark or number sign
        end = own.rpartition("@")[2] if "@" not in hidden else own
        return end if end != own and _HAS_PASSWORD.match(end) is None else _HIDDEN
    if protocol in _WITHOUT_USER:
        is_name = ":" not in unquote(authority)
        return own if is_name else _HIDDEN if protocol == ZIP else f"{host}{slash}{rest}"
    return f"{host}{slash}{rest}"


def _local_archive(path: str) -> str:
    """Return the local path of an archive as reports show it."""
    user, separator, place = _QUERY.sub("", path).rpartition("@")
    return place if ":" in user else f"{user}{separator}{place}"


@dataclass(frozen=True, slots=True)
class RemotePath:
    """
    A file or directory that is read through fsspec.

    It has those attributes of ``Path`` that readers of models use and that ask no server. Only
    :func:`parse` makes one of a text; the others come from it, and lie below it or beside it.
    """

    url: str = field(repr=False)
    """
    The URL, which may hold credentials: no report and no message has it. One of a model registry
    has two slashes here, as all others do.
    """

    is_derived: bool = field(default=False, compare=False)
    """Whether it was made from another path, and not given by a user."""

    listed: str = field(default="", compare=False)
    """
    The end of the URL that is a name from a listing: it holds no credentials, and a ``?`` in it is
    a part of the name.
    """

    def __str__(self) -> str:
        return self.shown

    def __lt__(self, other: RemotePath) -> bool:
        return self.url < other.url

    @property
    def shown(self) -> str:
        """The URL as reports show it."""
        own = self.url.removesuffix(self.listed)
        return f"{without_secrets(own)}{self.listed if own != self.url else ''}"

    @property
    def protocol(self) -> str:
        """The protocol, such as ``s3``."""
        return self.url.partition("://")[0]

    @property
    def is_web(self) -> bool:
        """Whether the protocol is HTTP, which has files and no directories."""
        return self.protocol in _WEB

    @property
    def archive(self) -> Path | RemotePath | None:
        """The zip archive that the file is a member of; None of what lies in no archive."""
        outer, separator, inner = self.url.partition("::")
        if not separator or not outer.startswith(f"{ZIP}://"):
            return None
        return RemotePath(inner) if is_url(inner) else Path(inner)

    @property
    def registered(self) -> str:
        """
        The model of an MLflow registry that the file belongs to, such as ``NAME/VERSION``; an empty
        text if it belongs to none.
        """
        match = _REGISTERED.match(self.url)
        return match[1] if match else ""

    @property
    def location(self) -> str:
        """
        What names the file on its server, or in its archive or its registered model, as fsspec's
        file systems take it.
        """
        if self.is_web:
            return self.url
        place = self._own.partition("://")[2].strip("/")
        return place.removeprefix(self.registered).lstrip("/")

    @property
    def _own(self) -> str:
        """The URL without the archive that it lies in, and of a web address without its query."""
        own = self.url.partition("::")[0] if self.protocol == ZIP else self.url
        return _QUERY.sub("", own) if self.is_web else own

    @property
    def name(self) -> str:
        """The last part."""
        return self._own.partition("://")[2].rstrip("/").rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the last part, with its dot."""
        return Path(self.name).suffix

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return Path(self.name).stem

    @property
    def parent(self) -> RemotePath:
        """The directory that it lies in; a bucket and a registered model are their own."""
        if self.registered and not self.location:
            return self
        protocol, _, place = self._own.partition("://")
        above = place.rstrip("/").rpartition("/")[0]
        return self._at(f"{protocol}://{above}") if above or self.protocol == ZIP else self

    @property
    def parents(self) -> tuple[RemotePath, ...]:
        """All directories above it, the nearest first; the last is the bucket."""
        above = self.parent
        return (above, *above.parents) if above != self and self.name else ()

    def __truediv__(self, name: str) -> RemotePath:
        own = self._own.rstrip("/")
        if self.protocol == ZIP:
            return self._at(f"{self.protocol}://{name}" if own == f"{ZIP}:" else f"{own}/{name}")
        return replace(self._at(f"{own}/{name}"), listed=f"{self.listed}/{name}")

    def joinpath(self, *names: str) -> RemotePath:
        """Return what has these names below it."""
        return self / "/".join(names) if names else self

    def with_name(self, name: str) -> RemotePath:
        """Return what has another name beside it."""
        return self.parent / name

    def relative_name(self, home: RemotePath) -> str:
        """Return the path relative to a directory above it."""
        return self.location.removeprefix(home.location).lstrip("/")

    def leads_out(self, home: RemotePath) -> bool:
        """Return whether it lies outside a directory, or its parts may lead out of it."""
        base = home.location
        below = not base or self.location == base or self.location.startswith(f"{base}/")
        return not below or ".." in self.location.split("/")

    def before_pattern(self) -> RemotePath | None:
        """Return the directory of all that a glob may match; None for a path that is not a glob."""
        protocol, _, place = self._own.partition("://")
        parts = place.split("/")
        first = next((number for number, part in enumerate(parts) if _GLOB & set(part)), 0)
        if self.is_web or not any(_GLOB & set(part) for part in parts):
            return None
        return self._at(f"{protocol}://{'/'.join(parts[:first])}")

    def _at(self, url: str) -> RemotePath:
        inner = self.url.partition("::")[2] if self.protocol == ZIP else ""
        return RemotePath(f"{url}::{inner}" if inner else url, is_derived=True)


AnyPath: TypeAlias = Path | RemotePath


def from_text(text: str) -> AnyPath:
    """
    Return the path that a text names: a URL or a local path.

    :raises UsageError: as :func:`parse`.
    """
    return parse(text) if is_url(text) else Path(text)


def local(path: AnyPath) -> Path:
    """
    Return a path of this machine.

    :raises TypeError: for a remote one, of which the caller has to make a local copy first.
    """
    if isinstance(path, RemotePath):
        raise TypeError(f"{path.shown} is remote")
    return path


def parse(url: str) -> RemotePath:
    """
    Return the path that a URL names.

    :raises UsageError: for an unsupported protocol, and for a URL that names no file.
    """
    safe_url = without_secrets(url)
    if "\0" in url:
        raise UsageError(f"the URL {safe_url.partition(chr(0))[0]} contains a NUL character")
    first, chained, inner = url.partition("::")
    match = _URL.fullmatch(first)
    if match is None:
        raise UsageError(f"not a URL: {safe_url}")
    protocol, place = match[1].lower(), match[2]
    if protocol not in PACKAGES:
        raise UsageError(
            f"unsupported protocol {protocol} in {safe_url}{did_you_mean(protocol, PACKAGES)} "
            f"Supported protocols: {', '.join(sorted(PACKAGES))}"
        )
    if protocol == ZIP:
        return RemotePath(f"{ZIP}://{_member(place, safe_url)}::{_archive(inner, safe_url)}")
    if chained:
        raise UsageError(
            f"unsupported URL {safe_url}: only zip:// can refer to another URL, as in "
            "zip://MEMBER::s3://BUCKET/ARCHIVE.zip"
        )
    if protocol == MODELS:
        return RemotePath(f"{MODELS}://{_registered_place(first, safe_url)}")
    if protocol not in _WEB:
        if protocol not in AZURE and _USER.match(place):
            raise UsageError(
                f"the URL {safe_url} cannot contain credentials; set them in the "
                "environment, as its fsspec package documents"
            )
        place = place.rstrip("/")
    if not place.strip("/"):
        raise UsageError(f"the URL {safe_url} does not name a file or a directory")
    _check_parts(place, safe_url)
    return RemotePath(f"{protocol}://{place}")


def _member(place: str, safe_url: str) -> str:
    _check_parts(place, safe_url)
    return place.strip("/")


def _registered_place(url: str, safe_url: str) -> str:
    """Return what a URL of a model registry names, without the protocol."""
    place = url.removeprefix(f"{MODELS}:/").rstrip("/")
    if not _REGISTERED.match(f"{MODELS}://{place}"):
        raise UsageError(
            f"the URL {safe_url} does not name a registered model; use models:/NAME/VERSION, where "
            "VERSION is a number, or models:/NAME@ALIAS"
        )
    _check_parts(place, safe_url)
    return place


def _archive(inner: str, safe_url: str) -> str:
    """Return the path or the URL of an archive, which cannot be in another archive."""
    if not inner:
        raise UsageError(
            f"the URL {safe_url} has no archive; add it, as in zip://MEMBER::ARCHIVE.zip"
        )
    if is_url(inner):
        archive = parse(inner)
        if archive.protocol == ZIP:
            raise UsageError(
                f"the URL {safe_url} names an archive in an archive, which is not supported"
            )
        return archive.url
    if "::" in inner:
        raise UsageError(
            f"the URL {safe_url} names an archive in an archive, which is not supported"
        )
    return inner


def _check_parts(place: str, safe_url: str) -> None:
    if ".." in _QUERY.sub("", place).split("/"):
        raise UsageError(f"the URL {safe_url} cannot contain the part '..'")


_VERSIONS: Final = (
    "ETag",
    "etag",
    "generation",
    "blob_id",
    "Content-MD5",
    "Digest",
)
"""Keys under which backends tell the version of a file's content, the best first."""

_TIMES: Final = (
    "CRC",
    "LastModified",
    "last_modified",
    "Last-Modified",
    "updated",
    "mtime",
    "created",
)
"""Keys of what may be equal for two contents, as times are that have a resolution of a second."""

_WEAK_ETAG: Final = "W/"


_MOST_BYTES: Final = 2**63 - 1
"""The largest size of a file that has an offset in a system call."""


class InvalidSizeError(Exception):
    """A server says a size that no file has."""


class Status(NamedTuple):
    """A server's description of a file or a directory."""

    is_directory: bool
    size: int | None
    """Bytes; None where the server does not say."""

    version: str
    """What differs between two contents of one name: an etag or a generation, else a time."""

    is_exact: bool = False
    """Whether two contents cannot have the same version."""


def status_from(entry: Mapping[str, Any]) -> Status:
    """
    Return the status that an entry of a listing of fsspec describes.

    :raises InvalidSizeError: if its size is none.
    """
    size = _size(entry.get("size"))
    exact = next((str(entry[key]) for key in _VERSIONS if entry.get(key)), "")
    return Status(
        is_directory=entry.get("type") == "directory",
        size=size,
        version=exact or next((str(entry[key]) for key in _TIMES if entry.get(key)), ""),
        is_exact=bool(exact) and not exact.startswith(_WEAK_ETAG),
    )


def _size(raw_size: object) -> int | None:
    if raw_size is None:
        return None
    try:
        size = int(raw_size)  # type: ignore[call-overload]  # some backends pass on what a server says
    except (TypeError, ValueError):
        raise InvalidSizeError from None
    if not 0 <= size <= _MOST_BYTES:
        raise InvalidSizeError
    return int(size)
