"""
Training configurations of compiled fixtures in the format of other releases: which keys are kept,
which losses are reported, and the places of the optimizer's state.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from msgspec import structs

from policytool.formats import format_detection
from policytool.formats.edits import Placement
from policytool.migration.convert import compiled, decoding
from policytool.migration.convert.architecture import walk
from policytool.migration.convert.compiled import Compiled, LossWriter, compile_config
from policytool.migration.convert.compiled.optimizer import (
    ConvertedOptimizer,
    optimizer_for_target,
    serialize,
)
from policytool.migration.convert.rewrites import ConversionContext
from policytool.migration.convert.target import Log, Target
from policytool.model import reading
from policytool.model.optimizer_variables import Style
from policytool.releases import keras_objects
from policytool.releases.known_arguments import LOSSES, METRICS
from policytool.releases.policy import Dynamic
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.formats.document import Document
    from policytool.support.text.jsontext import Json

PLAIN: Final = "default_float32_compiled"
SCALED: Final = "adam_autowrap_mf16"
ADAM: Final = "optimizer_weights"


@dataclass(frozen=True)
class Converted:
    """The converted training configuration of one file."""

    found: Compiled
    codes: frozenset[str]

    @property
    def config(self) -> dict[str, Any]:
        """The converted configuration, which must exist."""
        assert isinstance(self.found.config, dict)
        return self.found.config


def converted(
    file: str, loader: str, container: str, change: Callable[[Document], Document] | None = None
) -> Converted:
    """
    Return the converted configuration of a fixture, changed by a function if there is one; the
    places of weights stay unchanged because no test here needs them.
    """
    document = format_detection.document(FIXTURES / file, file)
    if change is not None:
        document = change(document)
    loaded = reading.load_model(document)
    log = Log()
    root = decoding.decode(loaded)
    weights = [
        Placement(
            path=tensor.path,
            shape=tensor.shape or (),
            dtype=tensor.dtype,
            source=tensor,
            layer=unit.path,
        )
        for unit in walk(root)
        if unit.site is not None
        for tensor in loaded.placed.sources.get(unit.site, ())
    ]
    context = ConversionContext(
        loaded=loaded, target=Target(loader=loader, container=container), log=log
    )
    return Converted(
        compile_config(root, context, weights), frozenset(note.code for note in log.notes)
    )


def in_bfloat16(document: Document) -> Document:
    """Return a model whose float variables are in bfloat16."""
    tensors = tuple(
        structs.replace(one, dtype="bfloat16") if one.dtype == "float32" else one
        for one in document.tensors or ()
    )
    return replace(document, tensors=tensors)


def with_named_optimizer(document: Document) -> Document:
    """Return an archive whose optimizer is only a name, as ``compile("adam")`` writes it."""
    config: Any = copy.deepcopy(document.config)
    config["compile_config"]["optimizer"] = "adam"
    return replace(document, parts={**document.parts, document.config_part or "": config})


def before_training(document: Document) -> Document:
    """Return a model whose optimizer has no slots yet, only a count of steps and a rate."""
    scalars = tuple(tensor for tensor in document.state if not tensor.shape)
    assert 0 < len(scalars) < len(document.state)
    return replace(document, state=scalars)


def paths(found: Compiled) -> list[str]:
    """Return the paths of the optimizer's variables."""
    return ["/".join(one.path) for one in found.state]


@pytest.mark.parametrize("release", ["keras2.3.1", "tf2.5", "tf2.15", "keras3.15"])
def test_no_state_is_lost_before_training(release: str) -> None:
    """Training of a model that was never trained starts at step 0 anyway, without a warning."""
    path = f"{release}/{PLAIN}.h5"
    result = converted(path, "keras3.15", "keras", before_training)
    assert (result.codes, result.found.state) == (frozenset(), ())


def test_slots_of_hdf5_go_to_the_places_of_an_archive() -> None:
    """
    Optimizer slots of HDF5 become numbered variables of an archive: the steps, the learning rate,
    and both slots of each weight.
    """
    one = converted(f"tf2.15/{PLAIN}.h5", "keras3.15", "keras")
    sources = [
        placement.source.path[-3:] if placement.source else placement.fill
        for placement in one.found.state
    ]
    assert paths(one.found) == [f"optimizer/vars/{number}" for number in range(6)]
    assert sources[1] == pytest.approx((0.001,))
    assert sources[2:] == [
        ("m", "dense_a", "kernel:0"),
        ("v", "dense_a", "kernel:0"),
        ("m", "dense_a", "bias:0"),
        ("v", "dense_a", "bias:0"),
    ]
    assert one.config["optimizer"]["module"] == "keras.optimizers"
    assert not one.codes


def test_slots_of_an_archive_get_the_names_of_hdf5() -> None:
    """
    Slots of an archive get the names of TF 2.4 in HDF5, which writes the first kind of slot for all
    weights and then the second.
    """
    one = converted(f"keras3.15/{PLAIN}.keras", "tf2.4", "h5")
    numbers = [int(placement.source.path[-1]) for placement in one.found.state if placement.source]
    assert numbers == [0, 2, 4, 3, 5]
    assert one.found.state_names[0] == "Adam/iter:0"
    assert [name.rpartition("/")[2] for name in one.found.state_names[1:]] == [
        "m:0",
        "m:0",
        "v:0",
        "v:0",
    ]
    assert one.config["loss"] == "mse"
    assert {"use_ema", "weight_decay", "loss_scale_factor"}.isdisjoint(
        one.config["optimizer_config"]["config"]
    )


@pytest.mark.parametrize(
    ("file", "loader", "container"),
    [
        (f"tf_keras2.21/{PLAIN}.keras", "keras3.15", "keras"),
        (f"tf_keras2.21/{PLAIN}.keras", "tf_keras2.21", "h5"),
        (f"tf2.15/{PLAIN}.keras", "tf2.4", "h5"),
        (f"keras3.15/{PLAIN}.keras", "tf_keras2.21", "keras"),
    ],
)
def test_optimizer_name_is_converted_as_the_default_optimizer(
    file: str, loader: str, container: str
) -> None:
    """
    An optimizer that is only a name, as ``compile("adam")`` stores it, is converted with the state
    of the default optimizer of that name.
    """
    named, spelled = (
        converted(file, loader, container, change) for change in (with_named_optimizer, None)
    )
    assert len(spelled.found.state) > 4
    assert named.found.state == spelled.found.state
    assert named.codes == spelled.codes == frozenset()
    key = "optimizer_config" if container == "h5" else "optimizer"
    assert named.config[key]["config"]["learning_rate"] == pytest.approx(0.001)
    assert named.config[key]["class_name"].endswith("Adam")


@pytest.mark.parametrize(
    ("loader", "container", "stored"),
    [
        ("tf_keras2.21", "h5", "float32"),
        ("tf_keras2.21", "keras", "float32"),
        ("keras3.14", "keras", "bfloat16"),
    ],
)
def test_slots_in_bfloat16_are_widened_as_weights_are(
    loader: str, container: str, stored: str
) -> None:
    """
    Slots in bfloat16 become float32 unless the target is an archive of Keras 3, the only format
    from which Keras reads bfloat16.
    """
    one = converted(f"keras3.15/{PLAIN}.keras", loader, container, in_bfloat16)
    slots = [placement.dtype for placement in one.found.state if placement.shape]
    assert slots == [stored] * 4


def test_keras3_restores_no_slots_from_hdf5() -> None:
    """
    A conversion to HDF5 of Keras 3 drops the optimizer's slots, which Keras 3 does not restore, and
    a note suggests an archive.
    """
    one = converted(f"tf2.15/{PLAIN}.h5", "keras3.15", "h5")
    assert one.found.state == ()
    assert "optimizer-state-lost" in one.codes
    assert one.config["loss"] == "mean_squared_error"
    assert [(metric["class_name"], metric["config"]) for metric in one.config["metrics"]] == [
        ("MeanAbsoluteError", {"name": "mae"})
    ]


def test_dynamic_scale_becomes_a_wrapper_with_its_state() -> None:
    """
    A dynamic loss scale becomes a wrapper in Keras 3, with four variables before those of the
    optimizer, which are stored again below the wrapper.
    """
    one = converted(f"tf2.4/{SCALED}.h5", "keras3.15", "keras")
    inner = [path for path in paths(one.found) if path.startswith("optimizer/inner_optimizer/vars")]
    outer = [path for path in paths(one.found) if path.startswith("optimizer/vars")]
    assert len(outer) == len(inner) + 4
    assert one.config["optimizer"]["class_name"] == "LossScaleOptimizer"
    assert one.config["optimizer"]["config"]["initial_scale"] == 32768.0


def test_state_of_a_wrapped_optimizer_is_found_in_hdf5_of_keras3() -> None:
    """
    The state of a wrapped optimizer is read from HDF5 of Keras 3, in which the wrapper's four
    variables come first.
    """
    one = converted(f"keras3.15/{SCALED}.h5", "keras3.15", "keras")
    sources = ["/".join(slot.source.path) for slot in one.found.state if slot.source is not None]
    own = ("iteration", "learning_rate", "step_counter", "dynamic_scale")
    assert sources[:2] == [f"{ADAM}/adam/iteration", f"{ADAM}/adam/learning_rate"]
    assert [source.rpartition("dense_a_")[2] for source in sources[2:6]] == [
        *("kernel_momentum", "kernel_velocity", "bias_momentum", "bias_velocity"),
    ]
    assert sources[6:10] == [f"{ADAM}/loss_scale_optimizer/{name}" for name in own]


@pytest.mark.parametrize(("container", "scaled"), [("keras", False), ("h5", True)])
def test_keras2_archives_without_state_have_no_wrapper(container: str, *, scaled: bool) -> None:
    """
    An archive of Keras 2 without optimizer state gets no loss scale wrapper, because
    ``LossScaleOptimizerV3`` fails to load without its variables.
    """
    one = converted(
        f"keras3.15/{SCALED}.h5", "tf_keras2.21", container, lambda found: replace(found, state=())
    )
    optimizer = one.config["optimizer_config" if container == "h5" else "optimizer"]
    assert one.found.state == ()
    assert (optimizer["class_name"] == "LossScaleOptimizerV3") is scaled
    assert ("loss-scale-lost" in one.codes) is not scaled


@pytest.mark.parametrize(("name", "written"), [("Lion", "Custom>Lion"), ("Adam", "Adam")])
def test_optimizer_that_keras2_cannot_wrap_has_its_registered_name(name: str, written: str) -> None:
    """Keras 2 finds it in HDF5 only by this name."""
    target, log = Target(loader="tf_keras2.21", container="h5"), Log()
    scaled = ConvertedOptimizer(
        class_name=name, config={}, style=Style.KERAS3, scale=Dynamic(), wrapped=True
    )
    found = serialize(optimizer_for_target(scaled, target, log), target, log)
    assert isinstance(found, dict)
    config = found["config"]
    assert isinstance(config, dict)
    inner = config.get("inner_optimizer", found)
    assert isinstance(inner, dict)
    assert inner["class_name"] == written
    assert ("loss-scale-lost" in {note.code for note in log.notes}) is (name == "Lion")


@pytest.mark.parametrize(
    ("loader", "kind", "given", "expected"),
    [
        ("keras3.15", LOSSES, "mse", "mean_squared_error"),
        ("keras3.15", LOSSES, "kullback_leibler_divergence", "kl_divergence"),
        ("keras3.15", LOSSES, "logcosh", "log_cosh"),
        ("tf2.2", LOSSES, "huber", "huber_loss"),
        ("tf2.4", LOSSES, "mse", "mse"),
        ("tf2.4", LOSSES, "dice", None),
        ("keras3.15", METRICS, "somebody_elses", None),
    ],
)
def test_losses_and_metrics_get_the_name_of_the_target(
    loader: str, kind: str, given: str, expected: Json
) -> None:
    """The name is None if the target does not have it."""
    assert compiled.name_in_target(Target(loader=loader, container="h5"), kind, given) == expected


@pytest.mark.parametrize(
    ("name", "from_keras3", "expected"), [("auc", True, "AUC"), ("precision", False, None)]
)
def test_aliases_of_keras_3_become_classes(
    name: str, expected: str | None, *, from_keras3: bool
) -> None:
    """A custom function of Keras 2 is not replaced by a class that has its name in Keras 3."""
    loader = "tf2.15" if from_keras3 else "keras3.15"
    target = Target(loader=loader, container="h5")
    written = LossWriter(target, Log(), METRICS, from_keras3).write([name])
    assert isinstance(written, list)
    assert keras_objects.class_of(written[0] if written else None) == expected
