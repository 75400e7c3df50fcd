"""
Reads and writes baselines. Paths in a baseline file are relative to the file, and paths in reports
are relative to the working directory.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from policytool.formats.discovery import display_path
from policytool.rules.selection import baselines
from policytool.support import limits
from policytool.support.errors import BaselineError
from policytool.support.files import opening
from policytool.support.files.remote_path import is_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from policytool.formats.discovery import Input
    from policytool.rules.base import Audited
    from policytool.rules.selection.baselines import Baseline
    from policytool.rules.selection.suppressions import Suppressions


def read(file: Path, settings_file: str | None = None) -> Baseline:
    """
    Return the baseline in a file.

    :param settings_file: the path of the settings file that names the baseline; None for an option
    :raises BaselineError: if the file cannot be read, or is not a baseline.
    """
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    subject = (
        f"--baseline {shown}"
        if settings_file is None
        else f"{settings_file}: the key 'baseline' names {shown}, which"
    )
    try:
        text = opening.read_user_file(file, limits.JSON_BYTES).decode("utf-8")
        return baselines.parse(text).at(
            lambda path: path if is_url(path) else display_path(file.parent / path)
        )
    except opening.TooLargeError as error:
        raise BaselineError(f"{subject} has {error.excess}") from error
    except FileNotFoundError as error:
        raise BaselineError(
            f"{subject} does not exist; create it with --write-baseline {shown}"
        ) from error
    except OSError as error:
        raise BaselineError(f"{subject} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BaselineError(
            f"{subject} is not UTF-8 text; regenerate it with --write-baseline"
        ) from error
    except BaselineError as error:
        raise BaselineError(f"{subject} {error}") from error


def renaming_candidates(baseline: Baseline, inputs: Sequence[Input]) -> list[Input]:
    """
    Return the inputs that may be renamed files of a baseline: inputs that the baseline does not
    list, if a listed file no longer exists. Only their findings can change what
    counts as known.
    """
    known = baseline.fingerprints
    if all(map(exists, known)):
        return []
    return [source for source in inputs if source.display_path not in known]


def with_baseline(
    baseline: Baseline, every: Sequence[Audited], suppressions: Suppressions
) -> Suppressions:
    """
    Return suppressions with the known findings of a baseline.

    :param every: the models with all their findings
    """
    return (
        replace(suppressions, known=baselines.known_findings(baseline, every, suppressions, exists))
        if baseline.findings
        else suppressions
    )


def text(baseline: Baseline, file: Path) -> str:
    """Return the text of a baseline file."""
    return baselines.render(
        baseline.at(
            lambda path: (
                path if is_url(path) else Path(os.path.relpath(path, file.parent)).as_posix()
            )
        )
    )


def exists(path: str) -> bool:
    """
    Return whether a file of a baseline exists. A remote file is assumed to exist, because a test
    would need a request.
    """
    return is_url(path) or os.path.lexists(path)
