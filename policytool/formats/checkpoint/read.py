"""
TensorFlow checkpoints: what ``save_weights`` writes with ``save_format="tf"``,
``tf.train.Checkpoint``, and TF 1's ``Saver``.

A checkpoint is several files; its index is the one that is read. Each of the others stands for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.formats.checkpoint import INDEX, prefix_of
from policytool.formats.document import Document, Layout, Observation, Tensor
from policytool.support.errors import BundleError
from policytool.support.files import opening

if TYPE_CHECKING:
    from policytool.formats.base import Probe
    from policytool.formats.checkpoint.bundle import Bundle, ObjectGraph
    from policytool.support.files.remote_path import AnyPath


def read(probe: Probe) -> Document:
    """Return the document of a checkpoint."""
    from policytool.formats.checkpoint import bundle as checkpoints
    from policytool.formats.checkpoint import names as _checkpoint_names

    if not probe.path.name.endswith(INDEX):
        raise probe.failure(*_no_index(probe))
    try:
        bundle = checkpoints.open_bundle(prefix(probe))
        lacking = tuple(bundle.lacking())
        named = _checkpoint_names.name_entries(bundle.entries, _objects(bundle, lacking))
    except BundleError as error:
        raise probe.failure(error.code, error.message) from error
    return Document(
        path=probe.shown,
        format="weights",
        layout=Layout.SCOPES,
        tensors=tuple(_tensor(path, bundle, key) for key, path in named.weights.items()),
        state=tuple(_tensor(tuple(key.split("/")), bundle, key) for key in named.rest),
        observations=tuple(
            Observation(code=error.code, message=error.message) for error in lacking
        ),
    )


def prefix(probe: Probe) -> AnyPath:
    """
    Return the prefix of the checkpoint whose index this is: what all its files' names begin with.
    """
    return probe.path.with_name(probe.path.name.removesuffix(INDEX))


def _tensor(path: tuple[str, ...], bundle: Bundle, key: str) -> Tensor:
    entry = bundle.entries[key]
    return Tensor(path=path, shape=entry.shape, dtype=entry.dtype, key=key)


def _objects(bundle: Bundle, lacking: tuple[BundleError, ...]) -> ObjectGraph | None:
    """
    Return the object graph; none where values are missing, its own perhaps, because the index alone
    says much.
    """
    try:
        return bundle.objects()
    except BundleError:
        if not lacking:
            raise
        return None


def _no_index(probe: Probe) -> tuple[str, str]:
    """
    Return code and sentence for a file of a checkpoint that is not its index, or not called so.
    """
    stem = prefix_of(probe.path.name, probe.head)
    if stem is None:
        return (
            "checkpoint-v1",
            (
                "looks like the index of a checkpoint, but is not named PREFIX.index; if "
                "it is a V1 checkpoint, save it again as V2"
            ),
        )
    index = probe.path.with_name(f"{stem}{INDEX}")
    advice = (
        f"specify its index, {index.name}"
        if opening.is_file(index)
        else f"copy its index, {index.name}, to the same directory"
    )
    return "checkpoint-part", f"is only part of a checkpoint; {advice}"
