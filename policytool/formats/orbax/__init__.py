"""
Orbax checkpoints, which ``keras.callbacks.OrbaxCheckpoint`` writes from Keras 3.13 on.

A checkpoint is a directory with a numbered directory for each step. Keras loads the step with the
largest number. A step is also a model here, so that two steps can be compared.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from policytool.formats.base import Format
from policytool.support.files import opening

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from policytool.formats.base import Probe
    from policytool.support.files.remote_path import AnyPath

NEEDS_PACKAGE: Final = "an Orbax checkpoint only with the package orbax-checkpoint"
"""The end of a sentence: what Keras loads, which policytool does not run."""

WITHOUT_CONFIG: Final = "orbax-weights"
"""The code of the observation that a checkpoint contains only weights."""

STEP_METADATA: Final = "_CHECKPOINT_METADATA"
TREE_METADATA: Final = "_METADATA"
SHARDING: Final = "_sharding"
STRINGS: Final = "_strings.json"

TREES: Final = ("pytree", "state")
"""
The directories of a step with its variables: Keras 3.14 and later name the first, and Orbax 0.12
the second for Keras 3.13.
"""

CONFIG: Final = "model_config"
"""The directory of a step with the config; Keras 3.13 writes none."""

SEED: Final = "seed_generator_state"
"""The last part of the name of the state of a random generator."""

UNFINISHED: Final = ".orbax-checkpoint-tmp"
"""A part of the name of each directory that Orbax renames when it is complete."""

_NUMBER: Final = re.compile(r"0|[1-9][0-9]*")
"""The names of steps: Orbax ignores numbers with a sign or with leading zeros."""

_TRIED: Final = 8
"""The number of steps that are tried, because any directory may contain numbered directories."""

_OWN_FILES: Final = frozenset({STEP_METADATA, TREE_METADATA, SHARDING, STRINGS, "manifest.ocdbt"})


def step_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers among names, the largest first."""
    return sorted((int(name) for name in names if _NUMBER.fullmatch(name)), reverse=True)


def is_step(path: AnyPath, names: frozenset[str]) -> bool:
    """Return whether a directory with these names contains the metadata of a step."""
    return STEP_METADATA in names or any(
        opening.is_reachable_file(path / tree / TREE_METADATA) for tree in TREES if tree in names
    )


def recognise(probe: Probe) -> bool:
    """
    Return whether the directory is a step, or contains a step or an unfinished step.

    Keras accepts each directory with a numbered directory, such as those of TensorFlow Serving.
    """
    if is_step(probe.path, probe.names):
        return True
    return any(map(_is_unfinished, probe.names)) or any(
        is_step(path, opening.names(path))
        for path in (probe.path / str(number) for number in step_numbers(probe.names)[:_TRIED])
        if opening.is_directory(path)
    )


def _is_unfinished(name: str) -> bool:
    number, mark, _ = name.partition(UNFINISHED)
    return bool(mark) and _NUMBER.fullmatch(number) is not None


def unfinished(names: Iterable[str]) -> list[str]:
    """Return the names of unfinished steps, in the order of their numbers."""
    return sorted(filter(_is_unfinished, names), key=lambda name: (len(name), name))


def owns(path: Path) -> bool:
    """Return whether a path is a step, or a file or directory in a step."""
    return path.parts[0] in {STEP_METADATA, CONFIG, *TREES} or bool(
        _NUMBER.fullmatch(path.parts[0])
    )


def whole(path: AnyPath) -> AnyPath | None:
    """Return the step that a file of metadata is a part of; None for other files."""
    if path.name not in _OWN_FILES:
        return None
    folder = path.parent if path.name == STEP_METADATA else path.parent.parent
    try:
        return folder if is_step(folder, opening.names(folder)) else None
    except OSError:  # reading the path itself reports the error
        return None


FORMAT: Final = Format(
    package=__name__,
    reader=f"{__name__}.read:read",
    values_opener=f"{__name__}.read:open_values",
    document_format="orbax",
    title="Orbax checkpoint",
    recognise=recognise,
    owns=owns,
    whole=whole,
)
