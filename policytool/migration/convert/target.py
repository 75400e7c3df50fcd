"""
What a model is converted to: a release that is to load it, and the container it is put in.

The log of a conversion collects what it changed, why it cannot be done, and what users should know.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A release, by its name in :data:`policytool.releases.releases.LOADERS`, and a container."""

    loader: str
    container: str
    """``h5``, ``keras``, ``json`` or ``tfjs``."""

    running: str | None = None
    """The release that is to run the result, if it is written as for an older one, ``loader``."""

    @property
    def release(self) -> str:
        """The release that is to run the result; for TensorFlow.js that of its configs."""
        return self.loader if self.is_tfjs else self.running or self.loader

    @property
    def name(self) -> str:
        """What is to load the model, as people write it: ``Keras 3.15``."""
        return release_name(self.id)

    @property
    def id(self) -> str:
        """What is to load the model, by its name in options: a release, or ``tfjs``."""
        return TFJS if self.is_tfjs else self.loader

    @property
    def is_tfjs(self) -> bool:
        """Whether TensorFlow.js is to load the model, written as for :attr:`loader`."""
        return self.container == TFJS

    @property
    def family(self) -> str:
        """:data:`~policytool.releases.releases.KERAS2` or its ``KERAS3``."""
        return get(self.loader).family

    @property
    def is_keras3(self) -> bool:
        """Whether the release is one of Keras 3."""
        return self.family == KERAS3

    @property
    def is_tf_keras(self) -> bool:
        """Whether the release is one of tf_keras."""
        return get(self.loader).library == "tf_keras"

    @property
    def package(self) -> str:
        """Where the release has its private modules."""
        if self.is_tf_keras:
            return "tf_keras.src"
        return "keras.src" if self.since("tf2.13") else "keras"

    def since(self, loader: str) -> bool:
        """Return whether the release is this one or a later one; Keras 3 is later than Keras 2."""
        return is_since(self.loader, loader)

    def lacks(self, kind: str, class_name: str, *, module: bool) -> bool:
        """
        Return whether the release does not have a class that some release has.

        :param module: whether the file says the modules of objects
        """
        objection = known_arguments.objection(self.loader, kind, class_name, {}, module=module)
        return objection is not None and objection.missing

    def after(self, loader: str) -> bool:
        """Return whether the release is a later one than this; see :meth:`since`."""
        return not is_since(loader, self.loader)

    @property
    def generation(self) -> Generation:
        """The generation that the release belongs to."""
        return get(self.loader).generation

    @property
    def keras_version(self) -> str:
        """What the release writes as its version, as far as minor releases are told apart."""
        version = get(self.loader).keras_version
        return f"{version}0" if version.endswith(".") else version

    @property
    def reads_bare_names(self) -> bool:
        """Whether the release reads a mixed policy as a bare name, the canonical spelling."""
        return generation_of(self.loader) is None

    @property
    def reads_archives(self) -> bool:
        """Whether the release reads ``.keras`` archives."""
        return get(self.loader).formats == ARCHIVES

    @property
    def says_modules(self) -> bool:
        """
        Whether serialised objects say their ``module`` and ``registered_name``: in archives of
        every release, and in all that TF 2.13 and later write; TensorFlow.js does not know them.
        """
        return self.container == "keras" or (self.since("tf2.15") and not self.is_tfjs)


@dataclass
class Log:
    """Filled while a model is converted; what is said twice is kept once."""

    changes: dict[ConversionChange, None] = field(default_factory=dict)
    refusals: dict[Refusal, None] = field(default_factory=dict)
    notes: dict[Note, None] = field(default_factory=dict)
    refused_paths: set[str | None] = field(default_factory=set)
    """The layers that refusals name; None for the file."""

    def change(self, what: str, unit: Unit | None, text: str) -> None:
        """
        Tell of something that is written otherwise; ``what`` is stable and machine-readable, such
        as ``key-dropped``.
        """
        self.changes[
            ConversionChange(code=what, path=unit.path if unit is not None else None, text=text)
        ] = None

    def refuse(self, code: str, unit: Unit | None, message: str) -> None:
        """Tell why the file cannot be converted: the layer, the key, and what to do."""
        path = unit.path if unit is not None else None
        self.refusals[Refusal(code=code, path=path, message=message)] = None
        self.refused_paths.add(path)

    def is_refused(self, unit: Unit) -> bool:
        """
        Return whether a refusal names the unit: what else speaks against it mostly follows from
        that.
        """
        return unit.path in self.refused_paths

    def caution(self, code: str, unit: Unit | None, message: str) -> None:
        """Tell of something that is lost or may matter."""
        self.notes[
            Note(
                severity=NoteSeverity.WARNING,
                code=code,
                path=unit.path if unit is not None else None,
                message=message,
            )
        ] = None

    def note(self, code: str, unit: Unit | None, message: str) -> None:
        """Tell of something to know."""
        self.notes[
            Note(
                severity=NoteSeverity.NOTE,
                code=code,
                path=unit.path if unit is not None else None,
                message=message,
            )
        ] = None


def display_value(value: Json) -> str:
    """Return a JSON value for a sentence, shortened where it is long."""
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004  # a width for sentences
