"""
The places of converted variables, compared with files of the same models that the target releases
wrote.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Final

from policytool.formats import format_detection
from policytool.migration.convert import decoding
from policytool.migration.convert.conversion_plan import rewrite_model
from policytool.migration.convert.rewrites import ConversionContext
from policytool.migration.convert.target import Log, Target
from policytool.migration.convert.variables import place_variables
from policytool.model import reading
from policytool.model.loaded_model import LoadedModel
from policytool.releases.layer_variables import slots
from tests.helpers.cases import for_each
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from policytool.formats.edits import Placement, StoredGroup
    from policytool.model.loaded_model import LoadedModel


CASES: Final = (
    "default_float32",
    "nested_models",
    "preprocessing",
    "wrappers",
    "mha",
    "rnn",
    "bidirectional_mixed",
    "string_lookup",
    "sequential",
    "lambda",
)
SOURCES: Final = ("tf2.15", "tf_keras2.21", "keras3.3", "keras3.6", "keras3.15")
TARGETS: Final = ("tf2.12", "tf2.15", "tf_keras2.21", "keras3.15")

OTHERS: Final = frozenset({"keras3.3/wrappers"})
"""Cases that a release writes another model for."""


def load_fixture(path: str) -> LoadedModel:
    """Return a loaded fixture, as planning uses it."""
    return reading.load_model(format_detection.document(FIXTURES / path, path))


def place(
    path: str, loader: str, container: str
) -> tuple[tuple[StoredGroup, ...], tuple[Placement, ...], Log]:
    """Return the groups and places of a fixture's variables, and the log."""
    loaded, target, log = load_fixture(path), Target(loader=loader, container=container), Log()
    root = rewrite_model(
        decoding.decode(loaded), ConversionContext(loaded=loaded, target=target, log=log)
    )
    log = Log()  # what the config cannot say is not asked here
    groups, placements = place_variables(
        root, ConversionContext(loaded=loaded, target=target, log=log)
    )
    return groups, placements, log


def pairs(suffix: str, container: str) -> list[tuple[str, str, str]]:
    """
    Return each source file with another release and the file of the same model that this release
    wrote.
    """
    found = []
    for case in CASES:
        for source in SOURCES:
            for form in (".h5", ".keras", ""):
                for target in TARGETS:
                    own = f"{target}/{case}{suffix}"
                    if (
                        f"{source}/{case}" not in OTHERS
                        and (FIXTURES / source / (case + form)).exists()
                        and (FIXTURES / own).exists()
                        and recognised(own, container)
                    ):
                        found.append((f"{source}/{case}{form}", target, own))
    return found


@cache
def recognised(path: str, container: str) -> bool:
    """
    Return whether the format of a fixture matches its suffix, because some releases write HDF5
    under another suffix.
    """
    return format_detection.document(FIXTURES / path, path).format == container


def stored(path: str) -> dict[tuple[str, ...], tuple[int, ...] | None]:
    """Return the variables of a file, without those of the optimizer."""
    return {
        tensor.path: tensor.shape
        for tensor in load_fixture(path).document.tensors or ()
        if tensor.path[0] not in {"optimizer", "metrics"}
    }


@THOROUGH
@for_each(("source", "target", "own"), pairs(".keras", "keras"))
def test_an_archive_has_the_paths_that_the_release_writes(
    source: str, target: str, own: str
) -> None:
    _, placements, log = place(source, target, "keras")
    assert not log.refusals
    assert {placement.path: placement.shape for placement in placements} == stored(own)


@THOROUGH
@for_each(("source", "target", "own"), pairs(".h5", "h5"))
def test_a_group_has_the_variables_that_the_release_writes(
    source: str, target: str, own: str
) -> None:
    """Scopes between group and variable are not compared because releases ignore them."""
    groups, placements, log = place(source, target, "h5")
    assert not log.refusals
    mine = sorted(
        (placement.path[0], placement.path[-1].removesuffix(":0"), placement.shape)
        for placement in placements
    )
    theirs = sorted(
        (path[0], path[-1].removesuffix(":0"), shape or ()) for path, shape in stored(own).items()
    )
    assert mine == theirs
    named = {(*group.path, *name.split("/")) for group in groups for name in group.names}
    assert named == {placement.path for placement in placements}


def test_moving_averages_come_after_trainable_variables() -> None:
    config = {"center": True, "scale": True}
    found = slots("BatchNormalization", "keras3.15", config) or ()
    assert [(slot.name, slot.index, slot.trainable) for slot in found] == [
        ("gamma", 0, True),
        ("beta", 1, True),
        ("moving_mean", 2, False),
        ("moving_variance", 3, False),
    ]
    assert [
        slot.name
        for slot in slots("BatchNormalization", "keras3.15", {**config, "scale": False}) or ()
    ] == ["beta", "moving_mean", "moving_variance"]


def test_cells_have_the_variables_of_their_layers() -> None:
    """
    An LSTMCell has the same variables as an LSTM, and the variables of an unknown class are
    unknown.
    """
    assert [
        (slot.name, slot.within, slot.index)
        for slot in slots("LSTMCell", "tf2.15", {"use_bias": False}) or ()
    ] == [
        ("kernel", (), 0),
        ("recurrent_kernel", (), 1),
    ]
    assert slots("NobodysLayer", "tf2.15", {}) is None


def test_bfloat16_is_widened_outside_of_keras3_archives() -> None:
    """
    bfloat16 variables become float32 with a note, except in Keras 3 archives, the only format that
    supports bfloat16.
    """
    _, archived, _ = place("keras3.15/global_bfloat16.keras", "keras3.15", "keras")
    _, grouped, log = place("keras3.15/global_bfloat16.keras", "tf_keras2.21", "h5")
    assert {placement.dtype for placement in archived} == {"bfloat16"}
    assert {placement.dtype for placement in grouped} == {"float32"}
    assert [note.code for note in log.notes] == ["bfloat16-widened"]


def test_layer_without_its_variables_is_rejected() -> None:
    """A layer whose variables are missing, as in a damaged file, is an error."""
    document = format_detection.document(
        FIXTURES / "keras3.15" / "default_float32.keras", "default_float32.keras"
    )
    loaded = reading.load_model(replace(document, tensors=(document.tensors or ())[2:]))
    context = ConversionContext(
        loaded=loaded, target=Target(loader="tf2.15", container="h5"), log=Log()
    )
    place_variables(rewrite_model(decoding.decode(loaded), context), context)
    assert {refusal.path for refusal in context.log.refusals} == {"functional/dense"}


def test_layers_without_variables_have_groups_in_archives() -> None:
    """Keras 2 expects it in each group, such as that of a nested model."""
    groups, _, _ = place("keras3.15/nested_models.keras", "tf_keras2.21", "keras")
    assert {
        ("vars",),
        ("layers", "functional", "vars"),
        ("layers", "functional", "layers", "dense", "vars"),
    } <= {group.path for group in groups}


def test_variables_of_a_shared_layer_are_read_from_the_first_place() -> None:
    """Keras 3.15 writes the first and does not find them when it loads the file."""
    loaded = reading.load_model(
        format_detection.document(
            FIXTURES / "keras3.15" / "shared_layer.keras", "shared_layer.keras"
        )
    )
    context = ConversionContext(
        loaded=loaded, target=Target(loader="keras3.3", container="keras"), log=Log()
    )
    root = rewrite_model(decoding.decode(loaded), context)
    _, placements = place_variables(root, context)
    assert not context.log.refusals
    found = {
        placement.layer: placement.source for placement in placements if placement.path[-1] == "0"
    }
    assert found["mlp/common"] == found["mlp/block/common"]
