"""
HDF5 models, rewritten.

Where only texts change, the file is copied as it is and its attributes are changed in the copy.
Where tensors are cast, a new file is made of the objects of the old one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.formats import casting
from policytool.formats.hdf5 import attributes, storage
from policytool.formats.hdf5 import read as layout
from policytool.formats.hdf5.links import dataset_at
from policytool.formats.hdf5.rebuild import Rebuild, by_address, rebuild
from policytool.formats.hdf5.rewriting import comparison, tensors
from policytool.formats.writers import Rewriter, edit_texts
from policytool.formats.writing import WriteError
from policytool.support.files import atomic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.edits import Cast, Counted
    from policytool.formats.hdf5.storage import OpenHdf5
    from policytool.formats.writers import Changes, FileChange

_PARTS: Final = (layout.CONFIG, layout.TRAINING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hdf5Change:
    """Texts, tensors and optimizer state that change in a HDF5 file."""

    rebuild: Callable[[OpenHdf5], Rebuild]
    """Returns what is different in the new file."""

    def measure(self, source: Path) -> Counted:
        """Return what casts would do to the values."""
        with storage.reading(source) as opened:
            return measure(opened, self.rebuild(opened))

    def write(self, source: Path, draft: Path) -> Counted:
        """Write the changed source into an empty draft."""
        with storage.reading(source) as opened:
            changes = self.rebuild(opened)
            if changes.casts or changes.state is not None:
                with storage.creating(draft, opened) as target:
                    return rebuild(opened, target, changes)
            old = {
                name.encode(): attributes.stored_text(opened.root, name.encode()) or b""
                for name in changes.texts
            }
            variable = {
                name: text
                for name, text in old.items()
                if attributes.is_variable(opened.root, name)
            }
        atomic.copy_file(source, draft)
        for name, text in variable.items():
            storage.wipe(draft, name, text)
        with storage.drafting(draft, "r+") as target:
            for part, new in changes.texts.items():
                attributes.change_text(target.file, part.encode(), new.encode("utf-8"))
        return {}

    def compare(self, source: Path, draft: Path) -> None:
        """Compare a draft with its source."""
        with storage.reading(source) as opened, storage.reading(draft) as target:
            comparison.compare(opened, target, self.rebuild(opened))


def measure(opened: OpenHdf5, changes: Rebuild) -> Counted:
    """Return what casts would do to the values of an open file."""
    by_address(opened.root, changes.casts)  # makes sure that they are all there
    datasets = {path: dataset_at(opened.root, path) for path in changes.casts}
    return {
        cast.tensor: tensors.cast_counts(datasets[path], cast)
        for path, cast in changes.casts.items()
    }


def files(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """
    Return what changes in the file.

    :raises WriteError: for what HDF5 models cannot have.
    """
    del path
    if changes.state is not None:
        raise WriteError(
            "not-rewritable", "the optimizer state of an HDF5 model cannot be rearranged"
        )
    casts = _casts_from_root(changes.casts)
    return {
        "": Hdf5Change(
            rebuild=lambda opened: Rebuild(
                casts=casts, texts=edit_texts(texts(opened), changes.edits)
            )
        )
    }


def texts(opened: OpenHdf5) -> Mapping[str, str]:
    """Return the model's config and its training config."""
    stored = {part: attributes.stored_text(opened.root, part.encode()) for part in _PARTS}
    return {part: text.decode("utf-8") for part, text in stored.items() if text is not None}


def _casts_from_root(casts: Sequence[Cast]) -> Mapping[tuple[str, ...], Cast]:
    """
    Return the casts by their path from the root: layers' tensors are told from the group of weights
    on, the optimizer's from the root.
    """
    bfloat16 = next((cast for cast in casts if cast.after == casting.BFLOAT16), None)
    if bfloat16 is not None:
        raise WriteError(
            "not-rewritable",
            f"{'/'.join(bfloat16.tensor)} cannot be stored as bfloat16: no release can read "
            "this dtype from HDF5",
        )
    return {
        cast.tensor if _is_state(cast) else (layout.WEIGHTS, *cast.tensor): cast for cast in casts
    }


def _is_state(cast: Cast) -> bool:
    return cast.path is None and cast.tensor[:1] == (layout.OPTIMIZER,)


def rewriter() -> Rewriter:
    """Return how models of this format are rewritten."""
    return Rewriter(files=files)
