"""
The record of a search: every trial as it is made, so that a search that was interrupted continues
(``tune --resume FILE``).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policytool.numerics.tuning.results import Trial
from policytool.support import limits
from policytool.support.errors import ModelFileError
from policytool.support.files import opening
from policytool.support.text import codec, jsontext

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policytool.commands.tune_options import TuneOptions
    from policytool.numerics.hand_over import PrivateCopy
    from policytool.numerics.tuning.candidate_layers import Candidates

VERSION: Final = 1

_BLOCK: Final = 2**20
"""Bytes that are read at a time."""

_SEARCH: Final = codec.reader(Mapping[str, str])
_TRIALS: Final = codec.reader(tuple[Trial, ...])


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """The file, and what its search is about."""

    path: Path
    search: Mapping[str, str]
    """Digests of what two searches have in common if the trials of one hold for the other."""

    def read(self) -> tuple[Trial, ...]:
        """
        Return the trials of an earlier search; nothing if the file does not exist.

        :raises ModelFileError: if the file cannot be read, is not a record, or belongs to another
            search.
        """
        try:
            text = opening.read_user_file(self.path, limits.JSON_BYTES)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise self._refused(
                "unreadable", f"cannot be read for --resume: {error.strerror or error}"
            ) from error
        try:
            record, _ = jsontext.parse(text)
            if not isinstance(record, dict) or record["version"] != VERSION:
                raise TypeError("expected an object")
            search = _SEARCH(record["search"])
            trials: tuple[Trial, ...] = _TRIALS(record["trials"])
        except (jsontext.JsonError, KeyError, TypeError, ValueError) as error:
            raise self._refused(
                "not-a-record",
                "is not a record of `policytool tune --resume`; specify another file",
            ) from error
        for name, digest in self.search.items():
            if search.get(name) != digest:
                raise self._refused(
                    "other-search",
                    f"belongs to a search with other {name}; repeat that command, or specify "
                    "another file",
                )
        return trials

    def write(self, trials: Sequence[Trial]) -> None:
        """
        Replace the file in one step.

        :raises ModelFileError: if that fails; the file is what it was.
        """
        # hashlib, random and socket, only where a file is written
        from policytool.support.files.atomic import Draft, remove_stale

        values = {"version": VERSION, "search": self.search, "trials": trials}
        target = Path(os.path.realpath(self.path))
        try:
            remove_stale(target.parent)
            with Draft.beside(target) as draft:
                draft.path.write_bytes(f"{codec.encode(values)}\n".encode())
                draft.publish(target, like=target if target.exists() else None, overwrite=True)
        except OSError as error:
            raise self._refused(
                "unwritable", f"cannot be written for --resume: {error.strerror or error}"
            ) from error

    def _refused(self, code: str, message: str) -> ModelFileError:
        return ModelFileError(str(self.path), code, message)


def record_of(
    path: Path, model: PrivateCopy, candidates: Candidates, tune_options: TuneOptions
) -> Record:
    """
    Return the record of a search.

    :raises ModelFileError: if a file of the search cannot be read.
    """
    options = (
        tune_options.candidate,
        tune_options.objective,
        *(tune_options.batches, tune_options.batch_size, tune_options.seed, tune_options.device),
        candidates.paths,
    )
    metric = tune_options.objective.metric
    files: dict[str, Sequence[object]] = {
        "model files": model.files,
        "inputs": [tune_options.inputs],
        "weights": [tune_options.weights],
        "labels": [metric.labels if metric is not None else None],
    }
    return Record(
        path=path,
        search={
            "options": hashlib.sha256(repr(options).encode()).hexdigest(),
            **{name: _digest(paths) for name, paths in files.items()},
        },
    )


def _digest(paths: Iterable[object]) -> str:
    """
    Return the digest of the contents of files; of a function of the user's, that of its name.

    :raises ModelFileError: if a file cannot be read.
    """
    whole = hashlib.sha256()
    for path in paths:
        if not isinstance(path, Path) or not path.is_file():
            whole.update(str(path).encode())
            continue
        try:
            content = hashlib.sha256()
            for block in opening.blocks(path, _BLOCK):
                content.update(block)
            whole.update(content.digest())
        except OSError as error:
            raise ModelFileError(
                str(path), "unreadable", f"cannot be read: {error.strerror or error}"
            ) from error
    return whole.hexdigest()
