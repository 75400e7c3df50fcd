"""Unpacked ``.keras`` models, rewritten one member at a time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from policytool.formats.hdf5.rewriting import comparison as comparing
from policytool.formats.hdf5.rewriting import storage
from policytool.formats.hdf5.rewriting.rebuild import rebuild
from policytool.formats.keras_archive import file_names
from policytool.formats.keras_archive import weights as _weights
from policytool.formats.rewriting import texts as _texts
from policytool.formats.rewriting.base import Changes, Rewriter, edit_texts
from policytool.formats.writing.failures import WriteError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from policytool.formats.casting import Counts
    from policytool.formats.edits import Cast, Counted, Edit
    from policytool.formats.hdf5.rewriting.rebuild import Rebuild
    from policytool.formats.hdf5.rewriting.storage import OpenHdf5

_PARTS: Final = (file_names.CONFIG, file_names.METADATA)


def texts(path: Path) -> Mapping[str, str]:
    """Return the JSON files."""
    return {part: _texts.member(path / part) for part in _PARTS if (path / part).is_file()}


def measure(path: Path, casts: Sequence[Cast]) -> Counted:
    """Return what casts would do to the values."""
    counts: dict[tuple[str, ...], Counts] = {}
    for name, wanted in _rebuilds(path, Changes(casts=tuple(casts))).items():
        with storage.reading(path / name) as opened:
            counts |= _weights.measure(opened, wanted)
    return counts


def members(path: Path, changes: Changes) -> tuple[str, ...]:
    """Return the names of the files that change."""
    return (*edit_texts(texts(path), changes.edits), *_rebuilds(path, changes))


def write(source: Path, draft: Path, changes: Changes) -> Counted:
    """Write one changed file of a model into an empty draft."""
    if source.name in _PARTS:
        _texts.write(source, draft, source.name, _of(source.name, changes))
        return {}
    with storage.reading(source) as opened, storage.creating(draft, opened) as target:
        return rebuild(opened, target, _rebuild_of(source, changes))


def compare(source: Path, draft: Path, changes: Changes) -> None:
    """Compare the draft of one file with its source."""
    if source.name in _PARTS:
        _texts.compare(source, draft, source.name, _of(source.name, changes))
        return
    with storage.reading(source) as opened, storage.reading(draft) as made:
        comparing.compare(opened, made, _rebuild_of(source, changes))


def _of(part: str, changes: Changes) -> list[Edit]:
    return [edit for edit in changes.edits if edit.address.part == part]


def _rebuild_of(source: Path, changes: Changes) -> Rebuild:
    wanted = _rebuilds(source.parent, changes).get(source.name)
    if wanted is None:
        raise WriteError(
            "source-changed", f"{source.name} does not match the plan; run again with --dry-run"
        )
    return wanted


def _rebuilds(path: Path, changes: Changes) -> Mapping[str, Rebuild]:
    @contextmanager
    def opening(name: str) -> Iterator[OpenHdf5]:
        with storage.reading(path / name) as opened:
            yield opened

    names = sorted(
        file.name for file in path.iterdir() if file.name.endswith(file_names.WEIGHTS_SUFFIX)
    )
    return _weights.rebuilds(names, opening, changes)


REWRITER: Final = Rewriter(
    texts=texts, measure=measure, write=write, compare=compare, members=members
)
