"""What several formats read alike: the probe, and what Keras' JSON has in common."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeGuard

from policytool.formats.document import Observation, Writer
from policytool.releases import keras_objects
from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.text import jsontext

if TYPE_CHECKING:
    from policytool.support.files.remote_path import AnyPath
    from policytool.support.limits import Limit
    from policytool.support.text.jsontext import Json

TAIL_BYTES: Final = 8
"""Enough for the one signature that stands at the end, that of a checkpoint's index."""

HEAD_BYTES: Final = 4096
"""
Enough for every signature, for a git-lfs pointer whole, and for HDF5's first three signature
offsets.
"""


ASSETS: Final = "assets"
"""The folder of a SavedModel, or an unpacked ``.keras`` model, with vocabularies and the like."""


class Probe:
    """A path, and the little that is read of it to recognise its format."""

    def __init__(self, path: AnyPath, shown: str) -> None:
        self.path = path
        self.shown = shown
        """How reports name the path."""

    @cached_property
    def is_directory(self) -> bool:
        """Whether the path is a directory."""
        return opening.is_directory(self.path)

    @cached_property
    def head(self) -> bytes:
        """The first :data:`HEAD_BYTES` bytes; none of a directory."""
        if self.is_directory:
            return b""
        return opening.read_head(self.path, HEAD_BYTES)

    @cached_property
    def tail(self) -> bytes:
        """
        The last :data:`TAIL_BYTES` bytes; none of a directory, or of a file that has not so many.
        """
        if self.is_directory:
            return b""
        with opening.regular_stream(self.path) as stream:
            size = stream.seek(0, os.SEEK_END)
            if size < TAIL_BYTES:
                return b""
            stream.seek(-TAIL_BYTES, os.SEEK_END)
            return stream.read(TAIL_BYTES)

    @cached_property
    def names(self) -> frozenset[str]:
        """The names directly in the directory; none for a file."""
        return opening.names(self.path) if self.is_directory else frozenset()

    def content(self, limit: Limit, code: str, claim: str, name: str = "") -> bytes:
        """
        Return the bytes of the file, or of a file in the directory.

        :param claim: how a sentence about more bytes than the limit begins, such as ``is JSON of``
        :raises ModelFileError: with this code, beyond the limit.
        :raises OSError: where it cannot be read.
        """
        try:
            return opening.read_bounded(self.path / name if name else self.path, limit)
        except opening.TooLargeError as error:
            raise self.failure(code, f"{claim} {error.beyond}") from error

    def tensor_path(self, name: str, code: str) -> tuple[str, ...]:
        """
        Return the parts of a tensor's name.

        :raises ModelFileError: with this code, for more parts than the depth of objects in a model.
        """
        parts = tuple(name.split("/"))
        if beyond := limits.OBJECT_DEPTH.exceeded_message(len(parts)):
            raise self.failure(code, f"has a tensor whose name consists of {beyond}")
        return parts

    def leads_out(self, path: AnyPath) -> bool:
        """Return whether a path lies outside the model's directory once links are followed."""
        return opening.links_out(path, self.path if self.is_directory else self.path.parent)

    def failure(self, code: str, message: str) -> ModelFileError:
        """Return the error for this path."""
        return ModelFileError(self.shown, code, message)


def parse_json(probe: Probe, text: str | bytes, part: str, observations: list[Observation]) -> Json:
    """
    Return the JSON ``text`` of ``part``; duplicate keys become observations, anything else that is
    wrong a failure.
    """
    try:
        value, repeated = jsontext.parse(text)
    except jsontext.JsonError as error:
        raise probe.failure(error.code, f"{part} {error}") from error
    if repeated:
        keys = ", ".join(repr(key) for key in repeated[:5])
        observations.append(
            Observation(
                code="duplicate-key",
                message=(
                    f"{part} has duplicate keys in one object ({keys}); Keras uses the last value"
                ),
                where=part,
            )
        )
    return value


def escaping_asset(name: str, how: str) -> Observation:
    """Return what is observed of an asset that lies outside the model's directory."""
    return Observation(
        code="escaping-asset",
        message=f"the asset {name!r} {how} and was not read",
        where=ASSETS,
    )


def is_serialised(config: Json) -> TypeGuard[dict[str, Json]]:
    """
    Return whether JSON says what Keras' serialised objects all say: a class by its name, and a
    config.
    """
    return (
        isinstance(config, dict)
        and keras_objects.class_of(config) is not None
        and "config" in config
    )


def writer_of(config: dict[str, Json]) -> Writer:
    """Return who wrote an architecture, as it says beside the model's class."""
    version, backend = config.get("keras_version"), config.get("backend")
    return Writer(
        keras=version if isinstance(version, str) else None,
        backend=backend if isinstance(backend, str) else None,
    )
