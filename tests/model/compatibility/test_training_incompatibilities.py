"""
What the rows on training configurations say, against what the real loaders said.

``fixtures/loads.json`` and ``loads_migrated.json`` have who refuses them,
``fixtures/training_state.json`` what is restored of the optimizer's state.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import h5py
import pytest
from msgspec import structs

import policytool
from policytool.formats import format_detection
from policytool.formats.document import Tensor
from policytool.migration import planning
from policytool.migration.plan import apply_edits
from policytool.model import reading
from policytool.model.compatibility import training_incompatibilities
from policytool.model.compatibility.incompatibilities import UNICODE_TEXT
from policytool.model.compatibility.training_incompatibilities import (
    LOST_STATE,
    REFUSALS,
    TrainingEvidence,
    first_matching_row,
)
from policytool.model.compatibility.training_verdicts import verdict
from policytool.model.model import Outcome
from policytool.model.tree import storage
from policytool.releases.releases import KERAS3, LOADERS, family_of
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import (
    Config,
    dense,
    h5_model,
    instance,
    sequential,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from policytool.formats.document import Document
    from policytool.support.text.jsontext import Json

Loads = dict[str, Any]

KERAS3_LOADERS: Final = tuple(name for name in LOADERS if family_of(name) == KERAS3)
RECORDS: Final = ("loads.json", "loads_migrated.json")
STATE: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = json.loads(
    (FIXTURES / "training_state.json").read_text(encoding="utf-8")
)
OPTIMIZERS: Final = {
    "Keras 3 does not find the Lamb optimizer in HDF5 files",
    "an object of Keras has the registered name of a custom object",
    "the optimizer is registered as Custom",
    "Keras 2 cannot rebuild a LossScaleOptimizer around this optimizer",
    "the LossScaleOptimizer was saved before the first step and has no name",
    "Nadam's momentum product is stored before its slots",
    "Nadam's momentum product is stored after its slots",
    "Keras 2 cannot rebuild Nadam for a model without trainable weights",
    "Keras 3 looks up the loss CategoricalGeneralizedCrossEntropy under the wrong name",
}
LOSING: Final = {"none", "iterations alone"}


def _record(name: str) -> Loads:
    found: Loads = json.loads((FIXTURES / name).read_text(encoding="utf-8"))["loads"]
    return found


def _document(file: str, *, migrated: bool) -> Document:
    document = format_detection.document(FIXTURES / file, file)
    return (
        apply_edits(
            document, planning.plan(reading.load_model(document), planning.Options()).edits, ()
        )
        if migrated
        else document
    )


def _evidence(document: Document) -> TrainingEvidence:
    loaded = reading.load_model(replace(document, traces=()))
    found = training_incompatibilities.evidence(
        document, loaded.placed, keras3=loaded.family == KERAS3
    )
    assert found is not None
    return found


def _by_loader(row: Mapping[str, str]) -> dict[str, str]:
    return {
        loader: outcome
        for outcome, loaders in row.items()
        if outcome != "compiled"
        for loader in loaders.split()
    }


def _cells(name: str) -> Iterator[tuple[str, dict[str, bool]]]:
    """
    Yield each compiled file with each release that loads its model, and whether the release fails
    on the training configuration.
    """
    for file, row in _record(name).items():
        if "compiled" in row:
            plain = _by_loader(row)
            compiled = {**plain, **_by_loader(row["compiled"])}
            yield (
                file,
                {
                    loader: compiled[loader] != "ok"
                    for loader in LOADERS
                    if plain.get(loader) == "ok"
                },
            )


@THOROUGH
@pytest.mark.parametrize("name", RECORDS)
def test_training_verdicts_agree_with_the_measured_loads(name: str) -> None:
    """
    The verdict on the training configuration agrees with the measured load for every compiled
    fixture, original and migrated, and every release that loads the model.
    """
    wrong, cells, refused = [], 0, 0
    for file, measured in _cells(name):
        found = _evidence(_document(file, migrated=name != RECORDS[0]))
        for loader, refuses in measured.items():
            said = verdict(found, loader)
            cells, refused = cells + 1, refused + refuses
            if said.doubt is None and refuses != (said.reason is not None):
                wrong.append(
                    f"{file} in {loader}: {said.reason or 'taken'}, but really "
                    f"{'refused' if refuses else 'taken'}"
                )
    assert not wrong, "\n".join(wrong)
    assert cells > 350
    assert refused > 70


@THOROUGH
def test_lost_optimizer_state_agrees_with_the_measured_loads() -> None:
    """
    The optimizer's state is reported as lost exactly if the measured release lost it, for every
    compiled fixture and release that loads its training configuration.
    """
    wrong, lost = [], 0
    for file, row in STATE.items():
        found = _evidence(_document(file, migrated=False))
        for loader, outcome in _by_loader(row["state"]).items():
            if loader in LOADERS:
                said = first_matching_row(LOST_STATE, found, loader)
                loses = outcome in LOSING or (outcome == "empty" and "legacy" in file)
                lost += loses
                if loses != (said is not None):
                    wrong.append(
                        f"{file} in {loader}: {said.reason if said else 'restored'}, but really "
                        f"{outcome}"
                    )
    assert not wrong, "\n".join(wrong)
    assert lost > 50


@THOROUGH
def test_every_row_applies_to_some_fixture() -> None:
    """
    Each row on training configurations applies to at least one fixture, except the rows on losses
    and optimizers that have separate tests.
    """
    unseen = [*REFUSALS, *LOST_STATE]
    for name in RECORDS:
        for file, row in _record(name).items():
            if "compiled" in row:
                found = _evidence(_document(file, migrated=name != RECORDS[0]))
                unseen = [
                    row
                    for row in unseen
                    if found.document.format not in row.formats or not row.shows(found)
                ]
    assert {row.reason.split(",")[0] for row in unseen} == {
        "Keras 3 does not find the learning rate schedule",
        "the schedule has the argument `warmup_target`",
        "the loss is a Keras 2 object with arguments that Keras 3 does not support",
        "a loss or a metric has an array as an argument",  # in claims.zip
        "the loss is an object with the argument `fn`",
        "a metric has a policy as its dtype",
        "a metric has a policy in the format of Keras 2",
        UNICODE_TEXT.partition(",")[0],
        *OPTIMIZERS,
    }


def test_schedules() -> None:
    """
    A Keras 2 learning rate schedule in HDF5 is incompatible with Keras 3, which finds only
    schedules with a module (measured with TF 1.15, 2.4 and Keras 3.15). It does not read that of an
    optimizer whose class it does not find (measured with TF 2.12 in Keras 3.0, 3.3 and 3.15).
    """
    found = _evidence(_document("keras2.3.1/default_float32_compiled.h5", migrated=False))
    rate: dict[str, Any] = instance(
        "ExponentialDecay", initial_learning_rate=0.1, decay_steps=10, decay_rate=0.9
    )
    for name, module, refused in (
        ("Adam", {}, True),
        ("Adam", {"module": "keras.optimizers.schedules"}, False),
        ("Custom>Adam", {}, False),
    ):
        optimizer: Any = instance(name, name="Adam", learning_rate={**rate, **module})
        other = structs.replace(
            found, optimizer=optimizer, configuration={"loss": "mean_squared_error"}
        )
        assert (verdict(other, "keras3.15").reason is not None) is refused
        assert verdict(other, "tf2.15").outcome is Outcome.LOADS


@pytest.mark.parametrize(
    ("loss", "refused"),
    [
        ("mean_squared_error", False),
        ("BinaryCrossentropy", False),
        ("mse", True),
        ("MAE", True),
        (["mse"], True),
        ({"dense": "mse"}, True),
        ("huber_loss", True),
        (
            instance("MeanSquaredError", reduction="auto", name="mean_squared_error"),
            True,
        ),
        (
            instance("MeanSquaredError", reduction="sum", name="mean_squared_error"),
            False,
        ),
        (None, False),
    ],
)
def test_losses(loss: Any, *, refused: bool) -> None:
    """
    A loss in HDF5 is incompatible with Keras 3 if Keras 3.0, 3.3, 3.6 and 3.15 failed to load it.
    """
    document = _document("keras2.3.1/default_float32_compiled.h5", migrated=False)
    found = structs.replace(_evidence(document), configuration={"loss": loss})
    assert (verdict(found, "keras3.15").reason is not None) is refused
    assert verdict(found, "tf2.15").outcome is Outcome.LOADS


_POLICY: Final = {"module": "keras", "class_name": "DTypePolicy", "config": {"name": "float32"}}


@pytest.mark.parametrize(
    ("class_name", "config", "failing"),
    [
        ("MeanSquaredError", {"dtype": "float16"}, ()),
        ("MeanSquaredError", {"dtype": "mixed_float16"}, ("keras3.0", "keras3.3")),
        ("MeanSquaredError", {"dtype": _POLICY}, ("keras3.0", "keras3.3")),
        ("AUC", {"dtype": "mixed_float16"}, ()),
        ("MeanSquaredError", {"dtype": instance("Policy", name="float32")}, KERAS3_LOADERS),
        ("MeanSquaredError", {"autocast": True}, KERAS3_LOADERS),
        ("AUC", {"my_option": 1}, KERAS3_LOADERS),
    ],
)
def test_configs_of_metrics_in_archives(
    class_name: str, config: dict[str, Any], failing: Collection[str]
) -> None:
    """Keras 3 builds the metrics of an archive when it loads the training configuration."""
    document = _document("keras3.0/adam_autowrap_mf16.keras", migrated=False)
    metric = {"module": "keras.metrics", "class_name": class_name, "config": config}
    training = {"optimizer": "rmsprop", "loss": "mse", "metrics": [metric]}
    found = structs.replace(_evidence(document), configuration=training)
    refusing = [loader for loader in KERAS3_LOADERS if verdict(found, loader).reason is not None]
    assert refusing == list(failing)


@pytest.mark.parametrize(("registered", "fails"), [("Custom>Huber", True), ("Huber", False)])
def test_keras_3_15_rejects_the_registered_name_of_a_loss(registered: str, *, fails: bool) -> None:
    """Earlier releases find the class in the module, as edited files of Keras 3.6 and 3.15 do."""
    document = _document("keras3.0/adam_autowrap_mf16.keras", migrated=False)
    loss = {"module": "keras.losses", **instance("Huber"), "registered_name": registered}
    training: Any = {"optimizer": "rmsprop", "loss": loss}
    found = structs.replace(_evidence(document), configuration=training)
    refusing = {loader for loader in KERAS3_LOADERS if verdict(found, loader).reason is not None}
    assert refusing == ({"keras3.15"} if fails else set())


@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize("is_built", [False, True])
def test_tf_2_12_does_not_build_a_legacy_optimizer(*, is_built: bool, is_wrapped: bool) -> None:
    """TF 2.12 calls `build` of the optimizer of a built model, which optimizers.legacy lacks."""
    document = _document("tf2.12/adam_autowrap_mf16.keras", migrated=False)
    optimizer: Any = {"module": "keras.optimizers.legacy", **instance("Adam")}
    if is_wrapped:
        optimizer = instance("LossScaleOptimizer", inner_optimizer=instance("Adam"), dynamic=True)
    found = structs.replace(
        _evidence(document),
        document=document if is_built else replace(document, tensors=()),
        configuration={"optimizer": optimizer, "loss": "mse"},
        optimizer=optimizer,
    )
    text = "cannot build the optimizer of an archive"
    assert (text in str(verdict(found, "tf2.12").reason)) is is_built
    assert text not in str(verdict(found, "tf2.15").reason)


@pytest.mark.parametrize("name", ["focal_loss_fixed", "loss_fn", "<lambda>"])
def test_custom_losses_and_metrics_give_an_unknown_verdict(name: str) -> None:
    """
    A custom loss or metric makes the verdict unknown, except a metric in Keras 3, which does not
    look up metrics in HDF5.
    """
    document = _document("keras2.3.1/default_float32_compiled.h5", migrated=False)
    loss = structs.replace(_evidence(document), configuration={"loss": {"dense": name}})
    assert [verdict(loss, loader).doubt is None for loader in ("tf2.15", "keras3.15")] == [
        False,
        False,
    ]
    reason = verdict(loss, "tf2.15").doubt or ""
    assert reason.startswith("the loss, a lambda, " if name == "<lambda>" else f"the loss {name} ")
    metric = structs.replace(_evidence(document), configuration={"metrics": [["accuracy", name]]})
    assert [verdict(metric, loader).doubt is None for loader in ("tf2.15", "keras3.15")] == [
        False,
        True,
    ]


_FUNCTION: Final = {"module": "builtins", "class_name": "function", "registered_name": "function"}


@pytest.mark.parametrize(
    ("metric", "is_custom"),
    [
        *((name, False) for name in ("auc", "precision", "recall", "f1_score", "acc", "Accuracy")),
        ({**_FUNCTION, "config": "binary_accuracy"}, False),
        ({**_FUNCTION, "config": "precision"}, True),
        ({**_FUNCTION, "config": "accuracy"}, True),
        ("my_metric", True),
    ],
)
def test_names_of_metrics_in_archives(metric: Any, *, is_custom: bool) -> None:
    """
    Measured in Keras 3.0 to 3.15: the name of a metric is found, but a custom function may have the
    same name.
    """
    document = _document("keras3.0/adam_autowrap_mf16.keras", migrated=False)
    training = {"optimizer": "rmsprop", "loss": "mse", "metrics": [metric]}
    found = structs.replace(_evidence(document), configuration=training)
    doubts = {loader: verdict(found, loader).doubt for loader in KERAS3_LOADERS}
    assert {bool(doubt and "is custom" in doubt) for doubt in doubts.values()} == {is_custom}


@pytest.mark.parametrize("name", ["precision", "f1_score"])
def test_names_that_only_keras_3_finds_are_custom_in_keras_2(name: str) -> None:
    """In HDF5, Keras 2 writes a custom function as its name, and finds it in custom_objects."""
    document = _document("keras2.3.1/default_float32_compiled.h5", migrated=False)
    found = structs.replace(_evidence(document), configuration={"metrics": [name]})
    assert "is custom" in str(verdict(found, "tf2.15").doubt)


@pytest.mark.parametrize(
    ("place", "refusing"), [(2, ["keras3.15"]), (4, ["keras3.0", "keras3.3", "keras3.6"])]
)
def test_the_product_of_nadam_moved(place: int, refusing: list[str]) -> None:
    """The place of its product of momentums changed between Keras 3.9 and 3.10."""
    document = _document("keras3.15/loss_scale_factor128.keras", migrated=False)
    shapes: list[tuple[int, ...]] = [(), (), (3,), (3,)]
    shapes.insert(place, ())
    state = tuple(
        Tensor(path=("optimizer", "vars", str(number)), shape=shape, dtype="float32")
        for number, shape in enumerate(shapes)
    )
    found = structs.replace(
        _evidence(document),
        document=replace(document, tensors=state),
        optimizer={"class_name": "Nadam", "config": {"name": "nadam"}},
    )
    assert [
        loader
        for loader in LOADERS
        if loader.startswith("keras3") and verdict(found, loader).reason is not None
    ] == refusing


@pytest.mark.parametrize("trained", [True, False])
def test_keras_2_rebuilds_nadam_for_a_trained_weight(trained: bool) -> None:  # noqa: FBT001
    """Without one, TF 2.12 to 2.15 and tf_keras 2.21 fail with an IndexError."""
    found = _evidence(_document("tf_keras2.21/lso_fixed128.h5", migrated=False))
    found = structs.replace(
        found,
        optimizer={"class_name": "Custom>Nadam", "config": {"name": "Nadam", "jit_compile": True}},
        placed=found.placed if trained else storage.NO_VARIABLES,
    )
    assert (verdict(found, "tf_keras2.21").reason is None) is trained


@pytest.mark.parametrize(
    ("file", "loads"), [("loss_scale_factor128.keras", True), ("loss_scale_factor128.h5", False)]
)
def test_the_one_loss_without_a_function_is_not_found_in_hdf5(file: str, *, loads: bool) -> None:
    """
    The loss CategoricalGeneralizedCrossEntropy is incompatible in HDF5 with Keras 3.15, which finds
    losses there only by their functions.
    """
    found = _evidence(_document(f"keras3.15/{file}", migrated=False))
    loss: Json = {"class_name": "CategoricalGeneralizedCrossEntropy", "config": {"q": 0.5}}
    found = structs.replace(found, configuration={"loss": loss})
    assert (verdict(found, "keras3.15").reason is None) is loads


@pytest.mark.parametrize(
    ("loss", "outcome"),
    [
        ("categorical_crossentropy", Outcome.LOADS),
        ("mean_squared_error", Outcome.LOADS),
        ("mse", Outcome.INCOMPATIBLE),
        ("loss_fn", Outcome.UNKNOWN),
    ],
)
def test_keras_3_0_reads_the_training_configuration_without_compiling(
    loss: str, outcome: Outcome
) -> None:
    """
    The outcomes are those of files of Keras 3.6 and tf_keras 2.21 in Keras 3.0.5 with
    ``compile=False``.
    """
    document = _document("keras2.3.1/default_float32_compiled.h5", migrated=False)
    configuration: Any = document.training
    assert document.training_part is not None
    parts = {
        **document.parts,
        document.training_part: {**configuration, "loss": loss},
    }
    by_loader = {
        verdict.loader: verdict
        for verdict in reading.load_model(replace(document, parts=parts)).loaders
    }
    assert by_loader["keras3.0"].outcome is outcome


def test_custom_optimizer_gives_an_unknown_verdict_in_keras_3_0() -> None:
    """Keras 3.0 finds a subclass only if its config has the name of a known optimizer."""
    document = _document("keras2.3.1/default_float32_compiled.h5", migrated=False)
    for name, is_open in (("adam", False), ("ScheduleFreeAdamW", False), ("my_adam", True)):
        optimizer: Json = {"class_name": "MyAdam", "config": {"name": name}}
        found = structs.replace(_evidence(document), optimizer=optimizer, configuration={})
        assert (verdict(found, "keras3.0").doubt is not None) is is_open


@pytest.mark.parametrize("file_format", ["h5", "savedmodel"])
def test_custom_optimizer_gives_an_unknown_verdict_in_keras_2(file_format: str) -> None:
    """Keras 2 finds an optimizer only by its class."""
    found = _evidence(_document("keras2.3.1/default_float32_compiled.h5", migrated=False))
    document = replace(found.document, format=file_format)
    optimizer: Json = {"class_name": "MyAdam", "config": {"name": "adam"}}
    found = structs.replace(found, document=document, optimizer=optimizer, configuration={})
    assert verdict(found, "tf2.15").doubt is not None


@pytest.mark.parametrize(("loader", "exists"), [("keras3.6", False), ("keras3.15", True)])
def test_an_optimizer_of_a_later_release_does_not_exist(loader: str, *, exists: bool) -> None:
    """Keras 3.6 fails with ``compile=True`` on a file with Muon that Keras 3.12 wrote."""
    document = _document("keras2.3.1/default_float32_compiled.h5", migrated=False)
    optimizer: Json = {"class_name": "Muon", "config": {"name": "muon"}}
    found = structs.replace(_evidence(document), optimizer=optimizer, configuration={})
    assert (verdict(found, loader).reason is None) is exists


@pytest.mark.parametrize(
    ("class_name", "module", "config", "refusing"),
    [
        ("AdamW", "keras.optimizers", {}, set()),
        ("AdamW", None, {}, {"tf2.12"}),
        ("Custom>AdamW", None, {}, set()),
        ("Custom>Lion", None, {}, {"tf2.12"}),
        ("Adam", None, {"learning_rate": {"config": {"warmup_target": None}}}, {"tf2.12"}),
    ],
)
def test_optimizers_of_tf_2_12(
    class_name: str, module: str | None, config: dict[str, Any], refusing: set[str]
) -> None:
    """TF 2.12 finds AdamW as Custom or by its module, and has neither Lion nor warmup."""
    evidence = _evidence(_document("tf2.15/adam_autowrap_mf16.h5", migrated=False))
    evidence = structs.replace(evidence, document=replace(evidence.document, state=()))
    entry: Any = {"class_name": class_name, "config": config, "module": module}
    changed = structs.replace(evidence, optimizer=entry)
    assert {
        loader for loader in ("tf2.12", "tf2.15") if verdict(changed, loader).reason is not None
    } == refusing


@pytest.mark.parametrize(("name", "fails"), [("Custom>Adafactor", False), ("Lion", True)])
def test_tf_2_12_rebuilds_a_wrapped_optimizer_that_is_registered_as_custom(
    name: str, *, fails: bool
) -> None:
    """TF 2.12 compiles a model with Adafactor in LossScaleOptimizerV3 that it wrote as HDF5."""
    evidence = _evidence(_document("tf2.15/adam_autowrap_mf16.h5", migrated=False))
    inner: Any = {"class_name": name, "config": {"name": "a", "learning_rate": 0.01}}
    entry: Any = {"class_name": "LossScaleOptimizerV3", "config": {"inner_optimizer": inner}}
    reason = verdict(structs.replace(evidence, optimizer=entry), "tf2.12").reason
    assert ("LossScaleOptimizer around" in str(reason)) is fails


def test_argument_of_an_optimizer_that_an_older_release_lacks(tmp_path: Path) -> None:
    """TF 2.3 does not build Ftrl with `beta`, which TF 2.4 and later write."""
    optimizer = {"class_name": "Ftrl", "config": {"name": "Ftrl", "beta": 0.0}}
    path = h5_model(tmp_path / "m.h5", sequential(dense()), weights=False)
    with h5py.File(path, "r+") as file:
        training = {"loss": "mse", "optimizer_config": optimizer}
        file.attrs["training_config"] = json.dumps(training).encode()
    verdicts = policytool.inspect(path).releases
    for loader, reason in (("tf2.3", "the optimizer Ftrl has no argument `beta`"), ("tf2.4", None)):
        training_verdict = verdicts[loader].training
        assert training_verdict is not None
        assert training_verdict.reason == reason


@pytest.mark.parametrize(
    ("scale", "fails"),
    [
        ({"inner_optimizer": instance("Adam"), "dynamic": True}, True),  # as TF 2.4 writes it
        ({"optimizer": instance("Adam"), "loss_scale": {}}, False),  # as TF 2.3 writes it
    ],
)
def test_tf_2_3_does_not_compile_the_wrapper_of_tf_2_4_in_a_saved_model(
    scale: Config, *, fails: bool
) -> None:
    """It fails with "KeyError: 'optimizer'"."""
    evidence = _evidence(_document("tf2.3/exp_mf16_fixed128", migrated=False))
    changed = structs.replace(evidence, optimizer=instance("LossScaleOptimizer", **scale))
    reason = "LossScaleOptimizer uses the format of TF 2.4 and later"
    assert str(verdict(changed, "tf2.3").reason).startswith(reason) is fails
