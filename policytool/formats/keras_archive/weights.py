"""What changes in the weights files of a ``.keras`` model: one, or several shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats.hdf5.links import dataset_at
from policytool.formats.hdf5.rewriting.rebuild import Rebuild
from policytool.formats.writing.failures import WriteError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from policytool.formats.edits import Cast
    from policytool.formats.hdf5.rewriting.storage import OpenHdf5
    from policytool.formats.rewriting.base import Changes

    Open = Callable[[str], AbstractContextManager[OpenHdf5]]
    """Opens a weights file by its name."""


def rebuilds(names: Sequence[str], opening: Open, changes: Changes) -> Mapping[str, Rebuild]:
    """
    Return how each weights file that changes is made anew.

    :raises WriteError: where a tensor is in none of them, or the optimizer's state in several.
    """
    if not changes.casts and changes.state is None:
        return {}
    casts: dict[str, dict[tuple[str, ...], Cast]] = {}
    holders: list[str] = []
    for name in sorted(names):
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
                    f"has no tensor {'/'.join(cast.tensor)}, which the plan casts; run --dry-run "
                    "again"
                ),
            )
    holder = _holder(sorted(names), holders) if changes.state is not None else None
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
            ("has no weights, but the plan changes the optimizer state; run again with --dry-run"),
        )
    return holders[0] if holders else names[0]
