"""
What a SavedModel does beside its metadata, told with a plan that changes the metadata: its
signatures, and which loader obeys which file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.edits import EditKind
from policytool.formats.saved_model.files import GRAPH, KERAS
from policytool.migration.plan import Note, NoteSeverity
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.formats.edits import Edit
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Signature

_SIGNATURES: Final = 5


def about_traces(loaded: LoadedModel, edits: Sequence[Edit]) -> Iterator[Note]:
    """Yield what readers of a rewritten SavedModel have to know."""
    if not edits or not loaded.is_saved_object:
        return
    if any(edit.kind is EditKind.NUMERICS for edit in edits):
        yield from _about_signatures(loaded)
    if any(node.other_part is not None for node in loaded.document.nodes.values()):
        message = (
            "the metadata is stored in two files, and both are rewritten: TF 2.5 and later read "
            f"{KERAS}, and TF 2.4 and earlier read {GRAPH}"
        )
        yield Note(severity=NoteSeverity.NOTE, code="two-files", message=message)
    if loaded.document.format == "keras-metadata":
        message = (
            f"the file is part of a SavedModel and works only with the {GRAPH} and the variables "
            "that were saved with it"
        )
        yield Note(severity=NoteSeverity.NOTE, code="part-of-a-model", message=message)


def _about_signatures(loaded: LoadedModel) -> Iterator[Note]:
    signatures = loaded.signatures
    if not signatures:
        if loaded.document.format == "savedmodel":
            message = "the model has no signatures; Keras rebuilds the layers from the metadata"
            yield Note(severity=NoteSeverity.NOTE, code="no-signatures", message=message)
        return
    listed = join_first([_signature_words(signature) for signature in signatures], _SIGNATURES)
    message = (
        f"the traced graph is unchanged: {listed}. TensorFlow Serving, TFLite and "
        "tf.saved_model.load run this graph and ignore the metadata, while "
        "tf.keras.models.load_model rebuilds the layers from the metadata. Use --retrace to "
        "re-export the graph"
    )
    yield Note(severity=NoteSeverity.WARNING, code="signatures-as-before", message=message)


def _signature_words(signature: Signature) -> str:
    if not signature.compute_dtypes:
        return f"{signature.name} computes as before"
    *others, last = signature.compute_dtypes
    return (
        f"{signature.name} still computes in {', '.join(others)} and {last}"
        if others
        else f"{signature.name} still computes in {last}"
    )
