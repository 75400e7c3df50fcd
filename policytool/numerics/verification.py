"""
Whether ``migrate --target`` can verify a conversion by default. This depends on the libraries of
the interpreters and on the size of the model.

TensorFlow is not imported for this. If this interpreter has no TensorFlow, importlib finds out;
otherwise, the interpreter runs ``runtime/__main__.py installed``, once per call.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.formats import WITHOUT_WEIGHTS
from policytool.formats.document import Layout
from policytool.formats.orbax import NEEDS_PACKAGE
from policytool.model.model import verdict_for
from policytool.numerics.environments import environments, release_of
from policytool.numerics.workers import RUNTIME, child_environment, interpreter_path
from policytool.releases.behaviour import measured_releases
from policytool.releases.releases import (
    BACKENDS,
    KERAS2,
    KERAS3,
    TFJS,
    family_of,
    library_and_version,
    release_name,
)
from policytool.support.processes import interrupts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policytool.formats.document import Document
    from policytool.model.model import Model, Verdict
    from policytool.releases.releases import Release

_MOST: Final = 2**30
"""
Maximum size of the weights in bytes. The processes load the weights twice, and larger models take
minutes.
"""

_LOOK: Final = 30.0
"""Maximum time in seconds for an interpreter to report its libraries."""

_MODULES: Final = {"tf": "tensorflow", "tf_keras": "tf_keras", "keras": "keras"}
"""The module of each :attr:`~policytool.releases.releases.Release.library`."""

_FIRST_WITHOUT_KERAS2: Final = (2, 16)
"""The first TensorFlow whose ``tf.keras`` is Keras 3."""


class InstalledLibraries(Struct, frozen=True, kw_only=True):
    """The modules of TensorFlow and Keras that an interpreter can import."""

    where: str
    """The name of the interpreter in messages."""

    releases: Mapping[str, str | None]
    """The release of each module; None if the environment does not record it."""

    problem: str | None = None
    """Why the libraries are unknown; None if the interpreter answered."""

    def lack(self, family: str) -> str | None:
        """Return why the interpreter cannot load files of a family; None if no reason is known."""
        if self.problem is not None:
            return self.problem
        backends = BACKENDS if family == KERAS3 else ("tensorflow",)
        if not any(backend in self.releases for backend in backends):
            return (
                f"{self.where} has no TensorFlow; to verify, install policytool[releases] and "
                "add `--python auto`, or specify an interpreter with --python"
            )
        if family == KERAS2:
            tensorflow = _major_and_minor(self.releases["tensorflow"])
            is_without = tensorflow is not None and tensorflow >= _FIRST_WITHOUT_KERAS2
            missing = "tf-keras" if is_without and "tf_keras" not in self.releases else None
        else:
            keras = _major_and_minor(self.releases.get("keras"))
            is_without = "keras" not in self.releases or (keras is not None and keras < (3, 0))
            missing = "Keras 3" if is_without else None
        backend = next(name for key, name in BACKENDS.items() if key in self.releases)
        return f"{self.where} has {backend}, but not {missing}" if missing is not None else None

    def has(self, release: Release) -> bool:
        """Return whether the interpreter has a release."""
        version = self.releases.get(_MODULES[release.library])
        return version is not None and f"{version}.".startswith(f"{release.version}.")


def installed_libraries(python: str) -> InstalledLibraries:
    """
    Return the libraries of an interpreter. This starts a process, unless the interpreter is that of
    this process and has no TensorFlow.
    """
    interpreter_words = "this environment" if python == sys.executable else python
    if (release := release_of(python)) is not None:
        return InstalledLibraries(
            where=release_name(release), releases=environments()[release].versions
        )
    if python == sys.executable and not any(map(importlib.util.find_spec, BACKENDS)):
        return InstalledLibraries(where=interpreter_words, releases={})
    try:
        with interrupts.temporary_directory() as scratch:
            completed = subprocess.run(  # noqa: S603  # this interpreter, or the one that the user chose
                [interpreter_path(python), str(RUNTIME), "installed"],
                cwd=scratch,
                env=child_environment(scratch),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_LOOK,
                check=True,
            )
        releases = _releases(json.loads(completed.stdout))
    except OSError as error:
        problem = f"{python} cannot be run ({error.strerror or error})"
    except (subprocess.SubprocessError, ValueError):
        problem = (
            f"{python} does not report its installed packages; check that it is a Python "
            "interpreter"
        )
    else:
        return InstalledLibraries(where=interpreter_words, releases=releases)
    return InstalledLibraries(where=interpreter_words, releases={}, problem=problem)


def weights_obstacle(document: Document) -> str | None:
    """Return why Keras cannot load the separate weights of a model; None if it can."""
    weights = document.weights
    has_scopes = weights is not None and weights.document.layout is Layout.SCOPES
    return "Keras loads only some variables of the separate weights" if has_scopes else None


def format_obstacle(*formats: str | None) -> str | None:
    """Return why Keras cannot predict with one of these formats; None if it can with all."""
    if "orbax" in formats:
        return f"Keras loads {NEEDS_PACKAGE}"
    return "Keras cannot run TensorFlow.js models" if TFJS in formats else None


def size_obstacle(model: Model) -> str | None:
    """Return why a model without weights, or with too many, is not verified; None otherwise."""
    if model.format in WITHOUT_WEIGHTS:
        return f"the file contains no weights ({model.format})"
    size = model.summary.bytes
    if size < _MOST:
        return None
    return (
        f"the weights need {size / _MOST:.1f} GiB; for 1 GiB or more, predictions are compared "
        "only with --verify"
    )


def not_failing(releases: Iterable[str], verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return the releases that are not known to fail on a file."""
    return tuple(
        name
        for name in releases
        if (verdict := verdict_for(verdicts, name)) is not None and verdict.reason is None
    )


def disagreeing_release(
    versions: Mapping[str, str], agreeing: Sequence[str], *, side: str
) -> str | None:
    """
    Return why different predictions do not mean that the conversion is wrong: measurements show
    that a release computes some layers differently from the release of the file. Return None if
    they do not.

    :param versions: the library that ran, and its releases
    :param agreeing: the releases with equal results; empty if they are unknown
    :param side: ``source`` or ``target``: the side whose interpreter the option sets
    """
    library, version = library_and_version(versions)
    major_and_minor = _major_and_minor(version)
    if major_and_minor is None or not agreeing:
        return None
    release = f"{library}{major_and_minor[0]}.{major_and_minor[1]}"
    if release in agreeing or release not in measured_releases(family_of(release)):
        return None
    return (
        f"{release_name(release)} was used for the {side}, but it computes some layers of the "
        f"model differently from {release_name(agreeing[-1])}; specify an interpreter with that "
        f"release: --python {side}=PYTHON"
    )


def _releases(answer: Any) -> Mapping[str, str | None]:  # noqa: ANN401  # checked here
    """
    Return the release of each module from an interpreter's answer.

    :raises ValueError: if the answer has another form.
    """
    if not isinstance(answer, dict) or not all(
        isinstance(version, str | None) for version in answer.values()
    ):
        raise ValueError(answer)
    return answer


def _major_and_minor(version: str | None) -> tuple[int, int] | None:
    """Return the first two numbers of a version; None if they are unknown."""
    parts = (version or "").split(".")
    if len(parts) < 2 or not all(part.isdecimal() for part in parts[:2]):  # noqa: PLR2004  # two
        return None
    return int(parts[0]), int(parts[1])
