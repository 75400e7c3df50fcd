"""
HDF5 models, rewritten.

Where only texts change, the file is copied as it is and its attributes are changed in the copy.
Where tensors are cast, a new file is made of the objects of the old one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats import casting
from policytool.formats.hdf5 import read as layout
from policytool.formats.hdf5.rewriting import attributes, storage, tensors, wipe
from policytool.formats.hdf5.rewriting import comparison as comparing
from policytool.formats.hdf5.rewriting.links import find
from policytool.formats.hdf5.rewriting.rebuild import Rebuild, by_address, rebuild
from policytool.formats.rewriting.base import Rewriter, edit_texts
from policytool.formats.writing.failures import WriteError
from policytool.support.files import atomic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from policytool.formats.edits import Cast, Counted
    from policytool.formats.hdf5.rewriting.storage import OpenHdf5
    from policytool.formats.rewriting.base import Changes

_PARTS: Final = (layout.CONFIG, layout.TRAINING)


def texts(path: Path) -> Mapping[str, str]:
    """Return the model's config and its training config."""
    with storage.reading(path) as opened:
        return _texts(opened)


def measure(path: Path, casts: Sequence[Cast]) -> Counted:
    """Return what casts would do to the values."""
    with storage.reading(path) as opened:
        return _measure(opened, _casts_from_root(casts))


def write(source: Path, draft: Path, changes: Changes) -> Counted:
    """Write the changed source into an empty draft."""
    with storage.reading(source) as opened:
        wanted = _rebuild_of(opened, changes)
        if wanted.casts:
            with storage.creating(draft, opened) as made:
                return rebuild(opened, made, wanted)
        old = {
            name.encode(): attributes.stored_text(opened.root, name.encode()) or b""
            for name in wanted.texts
        }
        variable = {
            name: text for name, text in old.items() if attributes.is_variable(opened.root, name)
        }
    atomic.copy_file(source, draft)
    for name, text in variable.items():
        wipe.wipe(draft, name, text)
    with storage.changing(draft) as made:
        for part, new in wanted.texts.items():
            attributes.change_text(made.file, part.encode(), new.encode("utf-8"))
    return {}


def compare(source: Path, draft: Path, changes: Changes) -> None:
    """Compare a draft with its source."""
    with storage.reading(source) as opened, storage.reading(draft) as made:
        comparing.compare(opened, made, _rebuild_of(opened, changes))


def _measure(opened: OpenHdf5, casts: Mapping[tuple[str, ...], Cast]) -> Counted:
    """Return what casts, by their path from the root, would do to the values."""
    by_address(opened.root, casts)  # makes sure that they are all there
    found = {path: find(opened.root, path) for path in casts}
    return {cast.tensor: tensors.measure(found[path], cast) for path, cast in casts.items()}


def _rebuild_of(opened: OpenHdf5, changes: Changes) -> Rebuild:
    if changes.state is not None:
        raise WriteError(
            "not-rewritable", "the optimizer state of an HDF5 model cannot be rearranged"
        )
    return Rebuild(
        casts=_casts_from_root(changes.casts), texts=edit_texts(_texts(opened), changes.edits)
    )


def _texts(opened: OpenHdf5) -> Mapping[str, str]:
    found = {part: attributes.stored_text(opened.root, part.encode()) for part in _PARTS}
    return {part: text.decode("utf-8") for part, text in found.items() if text is not None}


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


REWRITER: Final = Rewriter(texts=texts, measure=measure, write=write, compare=compare)
