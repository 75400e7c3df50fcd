"""
The names under which releases find the format of a file: Keras selects the reader by the suffix.

Measured with twelve names of archives and HDF5 files, and five of directories, in TF 2.4, 2.12,
2.15, tf_keras 2.21, and Keras 3.0, 3.3, 3.6, 3.12 and 3.15. All comparisons are case-sensitive.
"""

from __future__ import annotations

import shlex
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from policytool.formats import SUFFIXES
from policytool.model.model import Cause, Obstacle, Verdicts
from policytool.releases.releases import releases_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.model.model import Verdict

_ARCHIVE: Final = "keras"
_HDF5: Final = "h5"
_UNPACKED: Final = "unpacked"

_FIX: Final = "; rename it: "

_RULES: Final = {
    _ARCHIVE: (
        releases_in("tf2.12 on, keras3.0 on"),
        "Keras loads an archive only if its name ends with .keras",
    ),
    _HDF5: (
        releases_in("keras3.0 on"),
        "Keras 3 loads HDF5 only if its name ends with .h5 or .hdf5",
    ),
    _UNPACKED: (
        releases_in("keras3.4 on"),
        "Keras does not load a directory whose name ends with .keras",
    ),
}
"""The releases that read a kind of file only under some names, and how messages say it."""


def loadable_name(name: str, document_format: str, *, is_directory: bool) -> str:
    """Return a name under which releases load a file of a format: this name, if they do."""
    if document_format not in {_ARCHIVE, _HDF5}:
        return name
    suffixes = SUFFIXES[document_format]
    if is_directory:
        return name.removesuffix(suffixes[0])
    if name.endswith(suffixes):
        return name
    ending = PurePath(name).suffix
    return f"{name if ending[1:2].isdigit() else name.removesuffix(ending)}{suffixes[0]}"


def without_path(reason: str) -> str:
    """Return the reason of a cause without the name of the file, so that files can be counted."""
    return reason.partition(_FIX)[0]


def needed_name(verdict: Verdict | None) -> str | None:
    """Return the command that renames a file, if the release needs nothing else to load it."""
    causes = verdict.causes if verdict is not None else ()
    is_only = bool(causes) and all(cause.kind is Obstacle.NAME for cause in causes)
    return causes[0].remedy if is_only else None


def under_name(
    verdicts: Sequence[Verdict], document_format: str, path: str | None, *, is_directory: bool
) -> Sequence[Verdict]:
    """
    Return the verdicts on a file, with the cause that releases do not load it under its name. This
    cause comes last, because the others need more than a new name.

    :param path: the local path; None if it is unknown
    """
    name = "" if path is None else PurePath(path).name
    expected = loadable_name(name, document_format, is_directory=is_directory)
    if path is None or expected == name:
        return verdicts
    releases, reason = _RULES[_UNPACKED if is_directory else document_format]
    remedy = shlex.join(("mv", "-i", path, str(PurePath(path).with_name(expected))))
    cause = Cause(kind=Obstacle.NAME, reason=f"{reason}{_FIX}{remedy}", remedy=remedy)

    def with_name(verdict: Verdict) -> Verdict:
        return verdict.with_further_cause(cause) if verdict.loader in releases else verdict

    if isinstance(verdicts, Verdicts):
        return verdicts.map(with_name)
    return tuple(map(with_name, verdicts))
