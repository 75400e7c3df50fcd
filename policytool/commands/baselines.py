"""
Baselines between their files, whose paths are relative to the file, and reports, whose paths are
relative to the working directory.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from policytool.formats.discovery import display_path
from policytool.rules.selection import baselines
from policytool.rules.selection.baselines import KnownFindings
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


def read(file: Path) -> Baseline:
    """
    Return what a file remembers.

    :raises BaselineError: for what cannot be read, and for what is not a baseline.
    """
    try:
        text = opening.read_user_file(file, limits.JSON_BYTES).decode("utf-8")
        return baselines.parse(text).at(
            lambda path: path if is_url(path) else display_path(file.parent / path)
        )
    except opening.TooLargeError as error:
        raise BaselineError(f"--baseline {file} has {error.excess}") from error
    except OSError as error:
        raise BaselineError(
            f"--baseline {file} cannot be read: {error.strerror or error}"
        ) from error
    except UnicodeDecodeError as error:
        raise BaselineError(
            f"--baseline {file} is not UTF-8 text; regenerate it with --write-baseline"
        ) from error
    except BaselineError as error:
        raise BaselineError(f"--baseline {file} {error}") from error


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
    baseline: Baseline, every: Sequence[Audited], passing: Suppressions
) -> Suppressions:
    """
    Return what lets findings of models, as they were found, pass, with what a baseline knows of
    them.
    """
    return (
        replace(passing, known=baselines.known_findings(baseline, every, passing, exists))
        if baseline.findings
        else passing
    )


def known_findings(baseline: Baseline) -> KnownFindings:
    """Return what a baseline knows, in which renamed files are still to be recognised."""
    return KnownFindings(baseline, exists)


def baseline_from(every: Sequence[Audited], passing: Suppressions) -> Baseline:
    """Return what a baseline remembers of models, as they were found."""
    return baselines.of(every, passing)


def text(baseline: Baseline, file: Path) -> str:
    """Return a baseline as a file has it."""
    return baselines.render(
        baseline.at(
            lambda path: (
                path if is_url(path) else Path(os.path.relpath(path, file.parent)).as_posix()
            )
        )
    )


def exists(path: str) -> bool:
    """
    Return whether a file of a baseline exists; a remote one counts as existing, because it costs a
    request to know.
    """
    return is_url(path) or os.path.lexists(path)
