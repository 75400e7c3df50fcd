"""What changes in the members of a ``.keras`` model: texts, and weights in one or more shards."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from policytool.formats.hdf5.links import dataset_at
from policytool.formats.hdf5.rewriting.rebuild import Rebuild
from policytool.formats.keras_archive import file_names
from policytool.formats.rewriting.texts import TextChange
from policytool.formats.writing.failures import WriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from policytool.formats.edits import Cast, Edit
    from policytool.formats.hdf5.rewriting.storage import OpenHdf5
    from policytool.formats.rewriting.base import Changes

    Open = Callable[[str], AbstractContextManager[OpenHdf5]]
    """Opens a weights file by its name."""

_TEXTS: Final = (file_names.CONFIG, file_names.METADATA)


def text_changes(names: Container[str], changes: Changes) -> dict[str, TextChange]:
    """
    Return how each text that changes is edited.

    :raises WriteError: where the model has no text of that name.
    """
    edits: dict[str, list[Edit]] = defaultdict(list)
    for edit in changes.edits:
        edits[edit.address.part].append(edit)
    for part in sorted(edits):
        if part not in _TEXTS or part not in names:
            raise WriteError(
                "source-changed",
                f"has no {part}, which the plan changes; run again with --preview",
            )
    return {part: TextChange(part=part, edits=edits[part]) for part in sorted(edits)}


def rebuilds(names: Iterable[str], opening: Open, changes: Changes) -> Mapping[str, Rebuild]:
    """
    Return how each weights file that changes is made anew.

    :param names: of all files

    :raises WriteError: where a tensor is in none of them, or the optimizer's state in several.
    """
    if not changes.casts and changes.state is None:
        return {}
    casts: dict[str, dict[tuple[str, ...], Cast]] = {}
    holders: list[str] = []
    weights = sorted(
        {name for name in names if name.endswith(file_names.WEIGHTS_SUFFIX) and "/" not in name}
    )
    for name in weights:
        with opening(name) as opened:
            root = opened.root  # h5py's links do not keep their group open
            casts[name] = {
                cast.tensor: cast
                for cast in changes.casts
                if dataset_at(root, cast.tensor) is not None
            }
            if any(root.links.exists(group) for group in Rebuild(state=changes.state).new_groups):
                holders.append(name)
    placed = {tensor for found in casts.values() for tensor in found}
    for cast in changes.casts:
        if cast.tensor not in placed:
            raise WriteError(
                "source-changed",
                (
                    f"has no tensor {'/'.join(cast.tensor)}, which the plan casts; run --preview "
                    "again"
                ),
            )
    holder = _holder(weights, holders) if changes.state is not None else None
    return {
        name: Rebuild(casts=found, state=changes.state if name == holder else None)
        for name, found in casts.items()
        if found or name == holder
    }


def _holder(names: Sequence[str], holders: Sequence[str]) -> str:
    """Return the file that holds the optimizer's state, or will."""
    if len(holders) > 1:
        raise WriteError(
            "not-rewritable",
            f"the optimizer state is in several files ({', '.join(holders)}) and cannot "
            "be rearranged",
        )
    if not names:
        raise WriteError(
            "source-changed",
            ("has no weights, but the plan changes the optimizer state; run again with --preview"),
        )
    return holders[0] if holders else names[0]
