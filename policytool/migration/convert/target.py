"""
The target of a conversion: the release that will load the model, and the container.

The log of a conversion collects its changes, refusals, warnings and notes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msgspec import Struct

from policytool.migration.plan import ConversionChange, Note, NoteSeverity, Refusal
from policytool.releases import known_arguments
from policytool.releases.releases import (
    ARCHIVES,
    KERAS3,
    TFJS,
    generation_of,
    get,
    is_since,
    release_name,
)

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit
    from policytool.releases.generations import Generation
    from policytool.support.text.jsontext import Json


class Target(Struct, frozen=True, kw_only=True):
    """A release, named as in :data:`policytool.releases.releases.LOADERS`, and a container."""

    loader: str
    container: str
    """``h5``, ``keras``, ``json`` or ``tfjs``."""

    running: str | None = None
    """The release that will run the result, if ``loader`` is an older release."""

    @property
    def release(self) -> str:
        """The release that will run the result; for TensorFlow.js, the release of its configs."""
        return self.loader if self.is_tfjs else self.running or self.loader

    @property
    def name(self) -> str:
        """The display name of the target, such as ``Keras 3.15``."""
        return release_name(self.id)

    @property
    def id(self) -> str:
        """The name of the target in options: a release, or ``tfjs``."""
        return TFJS if self.is_tfjs else self.loader

    @property
    def is_tfjs(self) -> bool:
        """Whether TensorFlow.js will load the model; its configs are those of :attr:`loader`."""
        return self.container == TFJS

    @property
    def family(self) -> str:
        """:data:`~policytool.releases.releases.KERAS2` or its ``KERAS3``."""
        return get(self.loader).family

    @property
    def is_keras3(self) -> bool:
        """Whether the release is a Keras 3 release."""
        return self.family == KERAS3

    @property
    def is_tf_keras(self) -> bool:
        """Whether the release is a tf_keras release."""
        return get(self.loader).library == "tf_keras"

    @property
    def package(self) -> str:
        """The package of the release's private modules."""
        if self.is_tf_keras:
            return "tf_keras.src"
        return "keras.src" if self.since("tf2.13") else "keras"

    def since(self, loader: str) -> bool:
        """
        Return whether the target release is ``loader`` or later; Keras 3 is later than Keras 2.
        """
        return is_since(self.loader, loader)

    def lacks(self, kind: str, class_name: str, *, module: bool) -> bool:
        """
        Return whether the release lacks a class that another release has.

        :param module: whether the file contains the modules of objects
        """
        objection = known_arguments.objection(self.loader, kind, class_name, {}, module=module)
        return objection is not None and objection.missing

    def after(self, loader: str) -> bool:
        """Return whether the target release is later than ``loader``; see :meth:`since`."""
        return not is_since(loader, self.loader)

    @property
    def generation(self) -> Generation:
        """The generation that the release belongs to."""
        return get(self.loader).generation

    @property
    def keras_version(self) -> str:
        """The version that the release writes; the patch number is always 0."""
        version = get(self.loader).keras_version
        return f"{version}0" if version.endswith(".") else version

    @property
    def reads_bare_names(self) -> bool:
        """Whether the release reads mixed policies by name, the default policy format."""
        return generation_of(self.loader) is None

    @property
    def reads_archives(self) -> bool:
        """Whether the release reads ``.keras`` archives."""
        return get(self.loader).formats == ARCHIVES

    @property
    def writes_modules(self) -> bool:
        """
        Whether serialized objects have ``module`` and ``registered_name``: in archives of all
        releases, and in all files of TF 2.13 and later. TensorFlow.js does not support them.
        """
        return self.container == "keras" or (self.since("tf2.15") and not self.is_tfjs)


@dataclass
class Log:
    """The changes, refusals, warnings and notes of a conversion, without duplicates."""

    changes: dict[ConversionChange, None] = field(default_factory=dict)
    refusals: dict[Refusal, None] = field(default_factory=dict)
    notes: dict[Note, None] = field(default_factory=dict)
    refused_paths: set[str | None] = field(default_factory=set)
    """The paths of the layers in refusals; None for the file."""

    functions: dict[str, str] = field(default_factory=dict)
    """The functions that the result calls by name, with their expressions."""

    unknown_functions: dict[str, None] = field(default_factory=dict)
    """The names of those whose expression is unknown."""

    def change(
        self, what: str, unit: Unit | None, text: str, *, omitted: str | None = None
    ) -> None:
        """
        Log a change.

        :param what: the stable, machine-readable code of the change, such as ``key-dropped``
        :param omitted: the argument that is omitted because the target always uses its value
        """
        path = unit.path if unit is not None else None
        self.changes[ConversionChange(code=what, path=path, text=text, omitted=omitted)] = None

    def refuse(self, code: str, unit: Unit | None, message: str) -> None:
        """Log a refusal; the message names the key and suggests a solution."""
        path = unit.path if unit is not None else None
        self.refusals[Refusal(code=code, path=path, message=message)] = None
        self.refused_paths.add(path)

    def is_refused(self, unit: Unit) -> bool:
        """
        Return whether the log has a refusal of the unit; further problems of the unit usually have
        the same cause.
        """
        return unit.path in self.refused_paths

    def caution(self, code: str, unit: Unit | None, message: str) -> None:
        """Log a warning about lost information or a possible problem."""
        self.notes[
            Note(
                severity=NoteSeverity.WARNING,
                code=code,
                path=unit.path if unit is not None else None,
                message=message,
            )
        ] = None

    def note(self, code: str, unit: Unit | None, message: str) -> None:
        """Log a note."""
        self.notes[
            Note(
                severity=NoteSeverity.NOTE,
                code=code,
                path=unit.path if unit is not None else None,
                message=message,
            )
        ] = None


def display_value(value: Json) -> str:
    """Return a JSON value for a sentence; long values are shortened."""
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004  # a width for sentences
