"""
Paths of files on other machines, as URLs: their parts, their form in reports, and the statuses from
servers.

This module sends no requests; :mod:`policytool.support.files.opening` does.
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
At least two letters, because ``C:\\`` is a drive. MLflow writes only one slash after ``models:``.
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
The supported protocols, with the package that each needs in addition to fsspec.

The other protocols of fsspec start programs (``ssh``, ``git``), follow instructions in a file
(``reference``), write caches, or access more of this machine than local paths do.
"""

ZIP: Final = "zip"
MODELS: Final = "models"
HUB: Final = "hf"
_WEB: Final = frozenset({"http", "https"})
AZURE: Final = frozenset({"az", "abfs"})
"""Protocols with URLs ``abfs://CONTAINER@ACCOUNT...``, in which no user precedes the ``@``."""

GOOGLE: Final = frozenset({"gs", "gcs"})
_WITHOUT_USER: Final = frozenset({*AZURE, MODELS, ZIP})
_BUCKETS: Final = PACKAGES.keys() - _WEB
"""Protocols whose first part contains no colon, so that a password follows any colon."""

_REGISTERED: Final = re.compile(
    r"models://([^/*?[]+@[^/*?[]+|m-[0-9a-f]{32}|[^/*?[]+/[0-9]+)(?=/|$)"
)
"""A model of an MLflow registry, specified by an alias, by its id, or by a version."""

GLOB: Final = frozenset("*?[")
_USER: Final = re.compile(r"^[^/@]*@")
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,30}):([/\\]+)")
"""The scheme of a URL, or of a path that was created from a URL and has fewer slashes."""

_CHAINED: Final = re.compile(
    rf"(?:::|/)(?=(?:{'|'.join(PACKAGES)}|file|ftp|simplecache):/)", re.IGNORECASE
)
"""The separator before another URL; other words before a colon may be a part of a password."""

_MOST_CHAINED: Final = 8
"""The maximum number of URLs of a chain in reports; supported chains have two."""

_HOST: Final = re.compile(
    r"(\[[0-9A-Fa-f:.]+\]|localhost|[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+)(:[0-9]+)?"
)
"""A text between ``//`` and ``/`` that cannot be a part of a password with a slash."""

_PORT: Final = re.compile(r"[^:]+:[0-9]+")
_HAS_PASSWORD: Final = re.compile(r"[^:/]*:(?![0-9]+(/|$))")
_HIDDEN: Final = "..."
"""The replacement in reports for the part of a URL that may be a password."""

_URL_IN_TEXT: Final = re.compile(rf"{_SCHEME.pattern}[^\s'\"`]*(?<!:)")
"""A URL without a colon at its end, which belongs to the sentence."""


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
    Check that a path is not a URL.

    :param before: the beginning of the message, up to the path, such as ``--cache`` and a space
    :raises UsageError: for a URL, and for text that contains one: later messages may show a part of
        it that does not resemble a URL. The message shows the URL without its credentials.
    """
    safe_path = without_secrets(path)
    if is_url(path) or safe_path != path:
        raise UsageError(f"{before}{safe_path} is a URL; specify a local path")


def redacted(text: str) -> str:
    """Return a message with URLs in the form of reports, without credentials."""
    return _URL_IN_TEXT.sub(lambda match: without_secrets(match[0]), text)


def _divide(protocol: str, rest: str) -> tuple[str, str, str]:
    """
    Return the rest of a URL up to another URL or an archive, the separator, and the text after it.
    """
    if protocol == ZIP:
        return rest.partition("::")
    chained = _CHAINED.search(_QUERY.sub("", rest))
    if chained is None:
        return rest, "", ""
    return rest[: chained.start()], chained[0], rest[chained.end() :]


def _place(protocol: str, place: str) -> str:
    """Return the part of a URL after its protocol, as reports show it."""
    without_query = _QUERY.sub("", place)
    hidden = place.removeprefix(without_query)
    authority, slash, location = without_query.partition("/")
    host = authority.rpartition("@")[2]
    has_colon = ":" in unquote(host)
    is_certain = not has_colon if protocol in _BUCKETS else _HOST.fullmatch(host) is not None
    has_at = "@" in location or "@" in hidden
    if (
        (has_colon and not is_certain and _PORT.fullmatch(host) is None)
        or (has_at and ("@" in authority or not is_certain or _SCHEME.search(location) is not None))
        or ("@" in hidden and not slash)
    ):  # the password may contain the first slash, question mark or number sign
        end = without_query.rpartition("@")[2] if "@" not in hidden else without_query
        return end if end != without_query and _HAS_PASSWORD.match(end) is None else _HIDDEN
    if protocol in _WITHOUT_USER:
        is_name = ":" not in unquote(authority)
        return (
            without_query if is_name else _HIDDEN if protocol == ZIP else f"{host}{slash}{location}"
        )
    return f"{host}{slash}{location}"


def _local_archive(path: str) -> str:
    """Return the local path of an archive as reports show it."""
    user, separator, place = _QUERY.sub("", path).rpartition("@")
    return place if ":" in user else f"{user}{separator}{place}"


@dataclass(frozen=True, slots=True)
class RemotePath:
    """
    A file or directory that is read through fsspec.

    It has the attributes of ``Path`` that readers of models use and that need no request. Only
    :func:`parse` creates a path from a text. All other paths are derived from such a path, and are
    below it or next to it.
    """

    url: str = field(repr=False)
    """
    The URL, which may contain credentials and is never in reports or messages. A URL of a model
    registry also has two slashes.
    """

    is_derived: bool = field(default=False, compare=False)
    """Whether the path was derived from another path, not specified by a user."""

    listed: str = field(default="", compare=False)
    """
    The end of the URL that is a name from a listing. It contains no credentials, and a ``?`` is a
    part of the name.
    """

    def __str__(self) -> str:
        return self.shown

    def __lt__(self, other: RemotePath) -> bool:
        return self.url < other.url

    @property
    def shown(self) -> str:
        """The URL as reports show it."""
        own_url = self.url.removesuffix(self.listed)
        return f"{without_secrets(own_url)}{self.listed if own_url != self.url else ''}"

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
        """The zip archive that contains the file; None if the file is not in an archive."""
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
        The file's path on its server, in its archive or in its registered model, in the form of
        fsspec's file systems.
        """
        if self.is_web:
            return self.url
        place = self._own.partition("://")[2].strip("/")
        return place.removeprefix(self.registered).lstrip("/")

    @property
    def _own(self) -> str:
        """The URL without its archive and, for a web address, without its query."""
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
        """The directory that contains the file; for a bucket or a registered model, itself."""
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
        own_url = self._own.rstrip("/")
        if self.protocol == ZIP:
            return self._at(
                f"{self.protocol}://{name}" if own_url == f"{ZIP}:" else f"{own_url}/{name}"
            )
        return replace(self._at(f"{own_url}/{name}"), listed=f"{self.listed}/{name}")

    def joinpath(self, *names: str) -> RemotePath:
        """Return the path of these names below this path."""
        return self / "/".join(names) if names else self

    def with_name(self, name: str) -> RemotePath:
        """Return the path with another name in the same directory."""
        return self.parent / name

    def relative_name(self, home: RemotePath) -> str:
        """Return the path relative to a directory above it."""
        return self.location.removeprefix(home.location).lstrip("/")

    def leads_out(self, home: RemotePath) -> bool:
        """Return whether the path is outside a directory, or contains ``..``."""
        base = home.location
        below = not base or self.location == base or self.location.startswith(f"{base}/")
        return not below or ".." in self.location.split("/")

    def before_pattern(self) -> RemotePath | None:
        """Return the directory of all that a glob may match; None for a path that is not a glob."""
        protocol, _, place = self._own.partition("://")
        parts = place.split("/")
        first = next((number for number, part in enumerate(parts) if GLOB & set(part)), 0)
        if self.is_web or not any(GLOB & set(part) for part in parts):
            return None
        return self._at(f"{protocol}://{'/'.join(parts[:first])}")

    def _at(self, url: str) -> RemotePath:
        """Return another URL in the same archive, if this path is in one."""
        inner = self.url.partition("::")[2] if self.protocol == ZIP else ""
        return RemotePath(f"{url}::{inner}" if inner else url, is_derived=True)


AnyPath: TypeAlias = Path | RemotePath


def from_text(text: str) -> AnyPath:
    """
    Return the path in a text: a URL or a local path.

    :raises UsageError: as in :func:`parse`.
    """
    return parse(text) if is_url(text) else Path(text)


def local(path: AnyPath) -> Path:
    """
    Return a path of this machine.

    :raises TypeError: for a remote path, of which the caller must first make a local copy.
    """
    if isinstance(path, RemotePath):
        raise TypeError(f"{path.shown} is remote")
    return path


def parse(url: str) -> RemotePath:
    """
    Return the path of a URL.

    :raises UsageError: for an unsupported protocol, and for a URL without a file.
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
    """Return the model in a URL of a model registry, without the protocol."""
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
"""The keys of the version of a file's content in backends, the best first."""

_TIMES: Final = (
    "CRC",
    "LastModified",
    "last_modified",
    "Last-Modified",
    "updated",
    "mtime",
    "created",
)
"""The keys of values that may be equal for two contents, such as times in whole seconds."""

_WEAK_ETAG: Final = "W/"


_MOST_BYTES: Final = 2**63 - 1
"""The largest size of a file that has an offset in a system call."""


class InvalidSizeError(Exception):
    """A size from a server that no file can have."""


class Status(NamedTuple):
    """A server's description of a file or a directory."""

    is_directory: bool
    size: int | None
    """The size in bytes; None if the server does not send it."""

    version: str
    """The version of the content: an etag or a generation, or else a time."""

    is_exact: bool = False
    """Whether two contents cannot have the same version."""


def status_from(entry: Mapping[str, Any]) -> Status:
    """
    Return the status in an entry of a listing of fsspec.

    :raises InvalidSizeError: if the size is invalid.
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
    """Return the size of a file, from the value of a backend; None if unknown."""
    if raw_size is None:
        return None
    try:
        size = int(raw_size)  # type: ignore[call-overload]  # some backends return the server's value
    except (TypeError, ValueError):
        raise InvalidSizeError from None
    if not 0 <= size <= _MOST_BYTES:
        raise InvalidSizeError
    return int(size)
