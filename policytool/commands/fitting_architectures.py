"""
Finds the architectures next to weights that the weights fit, and plans the command that joins them.

Only names in the directory of the weights are tried, and no link out of it is followed. No values
are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.commands.inspect import FittingArchitectures
from policytool.formats import format_detection
from policytool.formats.discovery import display_path
from policytool.model import separate_weights
from policytool.releases.releases import KERAS3
from policytool.support import steps
from policytool.support.errors import ModelFileError, UsageError
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.formats.document import Document
    from policytool.model.loaded_model import LoadedModel

_SUFFIXES: Final = frozenset({".json", ".yaml", ".yml", ".keras"})
_MOST_FILES: Final = 16
_MOST_BYTES: Final = 16 * 2**20
"""The maximum size of an architecture. An archive may be larger: only its config is read."""


def fitting_architectures(weights: Document, path: Path) -> FittingArchitectures | None:
    """
    Return the architectures that fit the weights at ``path``; None if there are none.

    :raises ModelFileError: if the budget of steps is spent.
    """
    names: list[str] = []
    command: tuple[str, ...] | None = None
    with steps.budget(weights.path):
        for candidate in _candidates(path):
            architecture = _architecture(candidate, weights)
            if architecture is None:
                continue
            loaded = separate_weights.fits(architecture, weights, path)
            if loaded is None:
                continue
            names.append(candidate.name)
            if command is None and separate_weights.is_bare(architecture) and _can_join(loaded):
                shown = display_path(candidate)
                command = (shown, "--weights", weights.path, "--target", KERAS3)
    return FittingArchitectures(names=tuple(names), command=command) if names else None


def _candidates(path: Path) -> Iterator[Path]:
    """Yield the files next to the weights that may be architectures, similar names first."""
    try:
        names = [
            name
            for name in opening.names(path.absolute().parent)
            if name != path.name and name[name.rfind(".") :].lower() in _SUFFIXES
        ]
    except OSError:
        return
    stem = path.name.partition(".")[0]
    names.sort(key=lambda name: (name.partition(".")[0] != stem, name))
    for name in names[:_MOST_FILES]:
        candidate = path.with_name(name)
        if opening.links_out(candidate, path.absolute().parent):
            continue
        if opening.is_reachable_file(candidate) and (
            name.endswith(".keras") or candidate.stat().st_size <= _MOST_BYTES
        ):
            yield candidate


def _architecture(candidate: Path, weights: Document) -> Document | None:
    """Return the document of a candidate; None if it is not a model with a config."""
    try:
        architecture = format_detection.document(candidate, weights.path)
    except ModelFileError as error:
        if error.code == steps.CODE:
            raise
        return None
    return None if architecture.config_part is None else architecture


def _can_join(loaded: LoadedModel) -> bool:
    """Return whether ``migrate`` writes the model of an architecture and its weights."""
    from policytool.commands.destinations import Destination  # plans, which few weights need
    from policytool.commands.migration_preview import plan_migration
    from policytool.migration.planning.options import options_from_arguments

    options = options_from_arguments(None, (), target=KERAS3)
    try:
        plan = plan_migration(loaded, options, Destination())
    except (ModelFileError, UsageError):
        return False
    return not plan.refusals
