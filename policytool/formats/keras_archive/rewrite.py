"""
``.keras`` archives, rewritten: members that stay are copied as stored bytes, in their order, and
only those that change are made anew.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from policytool.formats.hdf5 import rewrite, storage
from policytool.formats.hdf5.rebuild import rebuild
from policytool.formats.hdf5.rewrite import measure
from policytool.formats.keras_archive import member_changes as _members
from policytool.formats.keras_archive import members as _archive
from policytool.formats.writers import Changes, FileChange, Rewriter
from policytool.formats.writing import WriteError, difference_error
from policytool.support.files import atomic
from policytool.support.files.byte_ranges import equal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.formats.casting import Counts
    from policytool.formats.edits import Counted
    from policytool.formats.hdf5.rebuild import Rebuild
    from policytool.formats.hdf5.storage import OpenHdf5


@dataclass(frozen=True, kw_only=True, slots=True)
class ArchiveChange:
    """Members of an archive that change."""

    changes: Changes

    def measure(self, source: Path) -> Counted:
        """Return what casts would do to the values."""
        with _archive.open_archive(source) as (_, archive):
            old = _Source(source, archive, Path(tempfile.gettempdir()) / source.name)
            counts: dict[tuple[str, ...], Counts] = {}
            for name, changes in old.rebuilds(self.changes).items():
                with old.weights(name) as opened:
                    counts |= measure(opened, changes)
            return counts

    def write(self, source: Path, draft: Path) -> Counted:
        """Write the changed archive into an empty draft."""
        with (
            _archive.open_archive(source) as (stream, archive),
            draft.open("r+b") as out,
            zipfile.ZipFile(out, "w") as new_archive,
        ):
            old = _Source(source, archive, draft)
            new_texts, rebuilds = old.texts(self.changes), old.rebuilds(self.changes)
            _refuse_duplicates(archive, {*new_texts, *rebuilds})
            new_archive.comment = archive.comment
            regions = _archive.member_regions(archive, stream.fileno())
            counts: dict[tuple[str, ...], Counts] = {}
            by_index: dict[int, zipfile.ZipInfo] = {}
            for index, info in sorted(
                enumerate(archive.infolist()), key=lambda pair: pair[1].header_offset
            ):
                if info.filename in new_texts:
                    new_archive.writestr(_archive.replacement_info(info), new_texts[info.filename])
                elif info.filename in rebuilds:
                    counts |= _rebuild_member(old, info, new_archive, rebuilds[info.filename])
                else:
                    _archive.copy_member(new_archive, out, info, regions[info.header_offset])
                by_index[index] = new_archive.filelist[-1]
            new_archive.filelist[:] = [by_index[index] for index in sorted(by_index)]
        return counts

    def compare(self, source: Path, draft: Path) -> None:
        """Compare a draft with its source."""
        with (
            _archive.open_archive(source) as (old_stream, old_archive),
            _archive.open_archive(draft) as (new_stream, new_archive),
        ):
            old, new = _Source(source, old_archive, draft), _Source(draft, new_archive, draft)
            new_texts, rebuilds = old.texts(self.changes), old.rebuilds(self.changes)
            old_infos, new_infos = old_archive.infolist(), new_archive.infolist()
            if [_description(info) for info in old_infos] != [
                _description(info) for info in new_infos
            ] or old_archive.comment != new_archive.comment:
                raise difference_error("the list of members")
            old_regions, new_regions = (
                _archive.member_regions(old_archive, old_stream.fileno()),
                _archive.member_regions(new_archive, new_stream.fileno()),
            )
            for old_info, new_info in zip(old_infos, new_infos, strict=True):
                if old_info.filename in new_texts:
                    is_same = new_archive.read(new_info) == new_texts[old_info.filename]
                elif old_info.filename in rebuilds:
                    with (
                        old.weights(old_info.filename) as first,
                        new.weights(old_info.filename) as second,
                    ):
                        rewrite.compare(first, second, rebuilds[old_info.filename])
                    is_same = True
                else:
                    is_same = old_info.CRC == new_info.CRC and equal(
                        old_regions[old_info.header_offset], new_regions[new_info.header_offset]
                    )
                if not is_same:
                    raise difference_error(old_info.filename)


class _Source:
    """An archive as weights files and texts."""

    def __init__(self, path: Path, archive: zipfile.ZipFile, scratch: Path) -> None:
        self._path, self._archive, self._scratch = path, archive, scratch

    def texts(self, changes: Changes) -> Mapping[str, bytes]:
        """Return the new bytes of each JSON member that changes."""
        texts = _members.text_changes(self._archive.NameToInfo, changes)
        return {part: text.new_bytes(self._archive.read(part)) for part, text in texts.items()}

    def rebuilds(self, changes: Changes) -> Mapping[str, Rebuild]:
        """Return how each weights member that changes is made anew."""
        return _members.member_rebuilds(self._archive.namelist(), self.weights, changes)

    @contextmanager
    def weights(self, name: str) -> Iterator[OpenHdf5]:
        """Open a weights member."""
        with _archive.open_weights(
            self._archive, self._path, self._archive.NameToInfo[name], self._scratch
        ) as opened:
            yield opened

    @property
    def scratch(self) -> Path:
        """Beside which temporary files are made."""
        return self._scratch


def _rebuild_member(
    old: _Source, info: zipfile.ZipInfo, new_archive: zipfile.ZipFile, changes: Rebuild
) -> Mapping[tuple[str, ...], Counts]:
    """Rebuild a weights member, using an unnamed temporary file."""
    with atomic.Draft.beside(old.scratch) as draft:
        with old.weights(info.filename) as opened, storage.creating(draft.path, opened) as target:
            counts = rebuild(opened, target, changes)
        _archive.add_file(new_archive, info, draft.path)
    return counts


def _refuse_duplicates(archive: zipfile.ZipFile, names: set[str]) -> None:
    for name, count in Counter(archive.namelist()).items():
        if count > 1 and name in names:
            raise WriteError(
                "not-rewritable",
                f"the archive contains {name} {count} times, but the plan changes it; "
                "remove all copies except the last",
            )


def _description(info: zipfile.ZipInfo) -> tuple[object, ...]:
    return (
        info.filename,
        info.date_time,
        info.compress_type,
        info.comment,
        _archive.plain_extra(info),
        info.create_system,
        info.internal_attr,
        info.external_attr,
    )


def files(path: Path, changes: Changes) -> Mapping[str, FileChange]:
    """Return what changes in the archive."""
    del path
    return {"": ArchiveChange(changes=changes)}


def rewriter() -> Rewriter:
    """Return how models of this format are rewritten."""
    return Rewriter(files=files)
