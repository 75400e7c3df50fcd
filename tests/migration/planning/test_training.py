"""The changes to loss scales and to the saved optimizer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from policytool.formats.document import Tensor
from policytool.migration.plan import NoteSeverity
from policytool.migration.planning.options import LossScales, Optimizers
from tests.helpers.planned_models import Config, chain, dense, document, plan
from tests.helpers.small_models import instance, instance3

ADAM: Config = instance("Adam", name="Adam", learning_rate=0.001, decay=0.0)
NEW_ADAM: Config = instance(
    "Custom>Adam", name="Adam", jit_compile=False, is_legacy_optimizer=False, learning_rate=0.001
)
FIXED: Config = {"class_name": "FixedLossScale", "config": {"loss_scale_value": 128.0}}
DYNAMIC: Config = instance(
    "DynamicLossScale", initial_loss_scale=1024.0, increment_period=50, multiplier=2.0
)
FOURFOLD: Config = instance(
    "DynamicLossScale", initial_loss_scale=1024.0, increment_period=50, multiplier=4.0
)
DEFAULT: Config = instance(
    "DynamicLossScale", initial_loss_scale=32768.0, increment_period=2000, multiplier=2.0
)


def scaled(scale: object, name: str = "mixed_float16") -> Config:
    """Return an experimental policy with a loss scale."""
    return {"class_name": "Policy", "config": {"name": name, "loss_scale": scale}}


def model(policy: object, *, first: object = None) -> Config:
    """Return a model whose layers have a policy; the first layer can have another policy."""
    return chain(dense("a", first or policy), dense("b", policy), dense("c", policy), dense("out"))


def compiled(optimizer: Config) -> Config:
    """Return a training configuration."""
    return {"loss": "mse", "optimizer_config": optimizer}


def wrapper(inner: Config, scale: object) -> Config:
    """Return the LossScaleOptimizer of TF 2.0 to 2.3 around an optimizer."""
    return {"class_name": "LossScaleOptimizer", "config": {"optimizer": inner, "loss_scale": scale}}


def current(inner: Config, initial: float, steps: int | None) -> Config:
    """Return the LossScaleOptimizer of TF 2.4 and later around an optimizer."""
    settings = {
        "inner_optimizer": inner,
        "dynamic": steps is not None,
        "initial_scale": initial,
        "dynamic_growth_steps": steps,
    }
    return {"class_name": "LossScaleOptimizer", "config": settings}


@pytest.mark.parametrize(
    ("policy", "optimizer", "severity", "says"),
    [
        (
            scaled(FIXED),
            wrapper(ADAM, FIXED),
            NoteSeverity.NOTE,
            "has the same loss scale and keeps it",
        ),
        (
            scaled(None),
            ADAM,
            NoteSeverity.NOTE,
            "compiling the model again under mixed_float16 would add loss scaling",
        ),
        (scaled(FIXED), ADAM, NoteSeverity.WARNING, "--keep loss-scale"),
        (
            scaled(FIXED),
            wrapper(ADAM, DYNAMIC),
            NoteSeverity.WARNING,
            "different loss scale (dynamic from 1024, growth by 2 every 50 steps)",
        ),
        (scaled(FIXED), None, NoteSeverity.WARNING, "dynamic=False, initial_scale=128"),
        (
            scaled(DYNAMIC),
            None,
            NoteSeverity.WARNING,
            "initial_scale=1024, dynamic_growth_steps=50",
        ),
        (scaled(None), None, NoteSeverity.WARNING, "auto_scale_loss=False"),
        (scaled(DEFAULT), None, NoteSeverity.NOTE, "adds the same loss scaling"),
        (scaled(DEFAULT, "float32"), None, NoteSeverity.WARNING, "initial_scale=32768"),
        (scaled(None, "float32"), None, NoteSeverity.NOTE, "adds the same loss scaling"),
    ],
)
def test_note_on_a_dropped_loss_scale_depends_on_the_optimizer(
    policy: Config, optimizer: Config | None, severity: NoteSeverity, says: str
) -> None:
    """If neither does, the note says what to write."""
    made = plan(
        document(model(policy), training=compiled(optimizer) if optimizer else None, keras="2.4.0")
    )
    (note,) = [note for note in made.notes if note.code.startswith("loss-scale")]
    assert note.severity is severity
    assert says in note.message
    assert all(edit.after in {"mixed_float16", "float32"} for edit in made.edits if edit.path)


def test_a_layers_loss_scale_is_inert() -> None:
    """Only the model's policy scales losses."""
    mixed = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
    made = plan(
        document(
            model(mixed, first=scaled(FIXED, "float32")), training=compiled(ADAM), keras="2.4.0"
        )
    )
    assert [note.code for note in made.notes] == ["ineffective-loss-scale"]
    assert (
        plan(
            document(model(mixed, first=scaled(FIXED, "float32")), training=compiled(ADAM)),
            loss_scale=LossScales.KEEP,
        )
        .edits[-1]
        .path
        is not None
    )


def test_no_loss_scale_no_note() -> None:
    assert not plan(
        document(
            model({"class_name": "Policy", "config": {"name": "mixed_float16"}}), keras="2.4.0"
        )
    ).notes


@pytest.mark.parametrize(
    ("scale", "inner", "expected"),
    [
        (FIXED, ADAM, current(ADAM, 128.0, None)),
        (DYNAMIC, ADAM, current(ADAM, 1024.0, 50)),
        (FIXED, NEW_ADAM, {**current(NEW_ADAM, 128.0, None), "class_name": "LossScaleOptimizerV3"}),
    ],
)
def test_keep_moves_the_scale_into_the_optimizer(
    scale: Config, inner: Config, expected: Config
) -> None:
    """
    ``--keep loss-scale`` wraps a plain optimizer in the wrapper of the same kind of optimizer.
    """
    made = plan(
        document(model(scaled(scale)), training=compiled(inner), keras="2.5.0"),
        loss_scale=LossScales.KEEP,
    )
    assert made.edits[-1].after == expected
    assert "loss-scale-moved" in {note.code for note in made.notes}


@pytest.mark.parametrize("optimizer", [wrapper(ADAM, FIXED), wrapper(ADAM, DYNAMIC), None])
def test_keep_loss_scale_does_not_change_a_scaling_or_missing_optimizer(
    optimizer: Config | None,
) -> None:
    """
    ``--keep loss-scale`` changes nothing if the optimizer already has a scale, or if the file has
    no optimizer.
    """
    found = document(
        model(scaled(FIXED)), training=compiled(optimizer) if optimizer else None, keras="2.4.0"
    )
    kept, dropped = plan(found, loss_scale=LossScales.KEEP), plan(found)
    assert kept.edits == dropped.edits


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (wrapper(ADAM, FIXED), current(ADAM, 128.0, None)),
        (wrapper(ADAM, DYNAMIC), current(ADAM, 1024.0, 50)),
        (wrapper(ADAM, "dynamic"), current(ADAM, 32768.0, 2000)),
        (wrapper(ADAM, 64), current(ADAM, 64.0, None)),
        (
            instance(
                "LossScaleOptimizerV1",
                inner_optimizer=ADAM,
                dynamic=True,
                initial_scale=8.0,
                dynamic_growth_steps=9,
            ),
            current(ADAM, 8.0, 9),
        ),
        (wrapper(ADAM, None), ADAM),
    ],
)
def test_old_wrappers_get_the_format_of_tf_2_4(before: Config, after: Config) -> None:
    """Every later Keras 2 reads that format."""
    made = plan(document(model("mixed_float16"), training=compiled(before), keras="2.4.0"))
    (edit,) = made.edits
    assert (edit.before, edit.after, edit.path) == (before, after, None)


def test_a_multiplier_other_than_two_has_no_modern_form() -> None:
    """Current releases support only two."""
    made = plan(
        document(model("mixed_float16"), training=compiled(wrapper(ADAM, FOURFOLD)), keras="2.4.0")
    )
    assert not made.edits
    assert [note.code for note in made.notes] == ["loss-scale-multiplier"]


@pytest.mark.parametrize("optimizer", [current(ADAM, 1.0, 1), ADAM, NEW_ADAM])
def test_current_optimizers_stay(optimizer: Config) -> None:
    assert plan(document(model("mixed_float16"), training=compiled(optimizer))).is_empty


def test_to_mixed_float16_gets_dynamic_loss_scaling() -> None:
    """
    ``--to mixed_float16`` adds dynamic loss scaling, as ``compile()`` does under this policy;
    ``--keep optimizer`` leaves the optimizer unchanged.
    """
    found = document(model("float32"), training=compiled(ADAM))
    assert plan(found, "mixed_float16").edits[-1].after == current(ADAM, 32768.0, 2000)
    left = plan(found, "mixed_float16", optimizer=Optimizers.KEEP)
    assert all(edit.path for edit in left.edits)
    assert "optimizer-kept" in {note.code for note in left.notes}
    assert all(edit.path for edit in plan(found, "mixed_bfloat16").edits)


def test_conversion_from_mixed_float16_removes_the_wrapper() -> None:
    """bfloat16 and float32 need no scaling."""
    found = document(model("mixed_float16"), training=compiled(current(ADAM, 32768.0, 2000)))
    assert plan(found, "mixed_bfloat16").edits[-1].after == ADAM
    assert plan(found, "float32").edits[-1].after == ADAM


def test_wrapping_a_new_optimizer_loses_the_state_in_hdf5() -> None:
    """
    A plan that wraps an optimizer in HDF5 warns that its state is lost, because no Keras restores
    LossScaleOptimizerV3 from HDF5, and suggests ``--keep optimizer``.
    """
    made = plan(
        document(model("float32"), training=compiled(NEW_ADAM), keras="2.15.0"), "mixed_float16"
    )
    (note,) = [note for note in made.notes if note.code == "optimizer-state"]
    assert note.severity is NoteSeverity.WARNING
    assert "--keep optimizer" in note.message


def archive(optimizer: Config | None, policy: str, *, wrapped: bool) -> Any:
    """Return a ``.keras`` archive of Keras 3 with the state of its optimizer."""
    named = instance3("DTypePolicy", "keras", name=policy)
    config = {
        **chain(dense("a", named), dense("b", named), dense("out", named)),
        "module": "keras.src.models.functional",
        "registered_name": "Functional",
    }
    for entry in config["config"]["layers"]:
        if entry["class_name"] == "InputLayer":
            entry["config"]["batch_shape"] = entry["config"].pop("batch_input_shape")
    if optimizer:
        config["compile_config"] = {"optimizer": optimizer, "loss": "mse"}
    paths = (
        [f"optimizer/inner_optimizer/vars/{n}" for n in range(3)]
        + [f"optimizer/vars/{n}" for n in range(7)]
        if wrapped
        else [f"optimizer/vars/{n}" for n in range(3)]
    )
    tensors = tuple(
        Tensor(path=tuple(path.split("/")), shape=(), dtype="float32") for path in paths
    )
    return replace(
        document(config, keras="3.15.0"),
        format="keras",
        parts={"config.json": config},
        config_part="config.json",
        tensors=tensors,
    )


KERAS3_ADAM: Config = instance3("Adam", "keras.optimizers", name="adam", loss_scale_factor=None)


def test_state_moves_when_keras3_gets_a_wrapper() -> None:
    """
    If Keras 3 gets a wrapper, the state has the wrapper's four variables, then the optimizer's, and
    the optimizer's again below ``inner_optimizer``.
    """
    made = plan(archive(KERAS3_ADAM, "float32", wrapped=False), "mixed_float16")
    assert made.edits[-1].after["config"]["inner_optimizer"] == KERAS3_ADAM  # type: ignore[index,call-overload]  # an object
    assert made.state is not None
    sources = {
        "/".join(slot.tensor): slot.source[-1] if slot.source else slot.value for slot in made.state
    }
    assert sources == {
        "optimizer/vars/0": 0, "optimizer/vars/1": 0.0, "optimizer/vars/2": 0, "optimizer/vars/3": 32768.0,  # noqa: E501  # a table
        **{f"optimizer/vars/{n + 4}": str(n) for n in range(3)},
        **{f"optimizer/inner_optimizer/vars/{n}": str(n) for n in range(3)},
    }  # fmt: skip


WRAPPED_ADAM: Config = {
    **KERAS3_ADAM,
    "class_name": "LossScaleOptimizer",
    "config": {"inner_optimizer": KERAS3_ADAM, "initial_scale": 2.0, "dynamic_growth_steps": 2},
}


@pytest.mark.parametrize("optimizer", [KERAS3_ADAM, WRAPPED_ADAM])
def test_state_moves_to_the_plain_optimizer_without_the_wrapper(optimizer: Config) -> None:
    """
    If the wrapper is removed, only the plain optimizer's state is left, even if ``compile()`` added
    the wrapper and the config has only the plain optimizer.
    """
    made = plan(archive(optimizer, "mixed_float16", wrapped=True), "float32")
    assert made.state is not None
    assert {"/".join(slot.tensor): slot.source for slot in made.state} == {
        f"optimizer/vars/{n}": ("optimizer", "vars", str(n + 4)) for n in range(3)
    }


@pytest.mark.parametrize("name", ["Nadam", "Adafactor"])
def test_state_without_a_place_in_the_wrapper_is_dropped(name: str) -> None:
    """
    The state of Nadam and Adafactor is dropped with a note if Keras 3 wraps them, because wrapped
    they save fewer variables.
    """
    made = plan(
        archive({**KERAS3_ADAM, "class_name": name}, "float32", wrapped=False), "mixed_float16"
    )
    assert made.state == ()
    assert "optimizer-state" in {note.code for note in made.notes}


def test_state_of_keras2_archives_keeps_the_place() -> None:
    """
    The optimizer's state in a Keras 2 archive keeps its place with or without a wrapper; the copy
    below ``inner_optimizer`` is removed with the wrapper.
    """
    config = chain(
        dense("a", "mixed_float16"), dense("b", "mixed_float16"), dense("out", "mixed_float16")
    )
    wrapped = instance(
        "LossScaleOptimizerV3",
        inner_optimizer=NEW_ADAM,
        dynamic=True,
        initial_scale=8.0,
        dynamic_growth_steps=9,
    )
    config = {
        **config,
        "module": "keras.src.engine.functional",
        "registered_name": "Functional",
        "compile_config": {"optimizer": wrapped},
    }
    paths = [f"optimizer/vars/{n}" for n in range(3)] + [
        f"optimizer/inner_optimizer/vars/{n}" for n in range(3)
    ]
    tensors = tuple(
        Tensor(path=tuple(path.split("/")), shape=(), dtype="float32") for path in paths
    )
    found = replace(
        document(config, keras="2.15.0"),
        format="keras",
        parts={"config.json": config},
        config_part="config.json",
        tensors=tensors,
    )
    made = plan(found, "float32")
    assert made.state is not None
    assert {"/".join(slot.tensor): "/".join(slot.source or ()) for slot in made.state} == {
        f"optimizer/vars/{n}": f"optimizer/vars/{n}" for n in range(3)
    }


@pytest.mark.parametrize(("optimizer", "warned"), [(ADAM, True), (NEW_ADAM, False)])
def test_bfloat16_slots_that_the_optimizer_cannot_read_are_reported(
    optimizer: Config,
    warned: bool,  # noqa: FBT001
) -> None:  # a case
    """
    A warning reports optimizer slots in bfloat16 if the optimizer is of the old kind, which cannot
    read them from HDF5.
    """
    made = plan(document(model("float32"), training=compiled(optimizer)), "bfloat16")
    assert ("optimizer-state" in {note.code for note in made.notes}) is warned


@pytest.mark.parametrize(
    ("name", "keras", "wraps"),
    [("AdamW", "2.15.0", False), ("AdamW", "2.21.0", True), ("Lion", "2.21.0", False)],
)
def test_optimizers_that_cannot_be_wrapped_stay_plain(
    name: str,
    keras: str,
    wraps: bool,  # noqa: FBT001
) -> None:  # a case
    """
    An optimizer that the release cannot wrap stays plain with a note on the missing scale: TF 2.15
    cannot wrap AdamW, and no Keras 2 wraps Lion or Adafactor.
    """
    made = plan(
        document(
            model("float32"),
            training=compiled({**NEW_ADAM, "class_name": f"Custom>{name}"}),
            keras=keras,
        ),
        "mixed_float16",
    )
    assert any(edit.path is None for edit in made.edits) is wraps
    assert ("loss-scale-lost" in {note.code for note in made.notes}) is not wraps


def test_a_wrapper_that_keras3_did_not_write_is_fixed() -> None:
    """
    ``--keep loss-scale`` adds the wrapper that Keras 3 omits: ``compile()`` wraps the optimizer,
    but ``save()`` writes the plain config with the wrapper's state, which fails to load.
    """
    found = archive(KERAS3_ADAM, "mixed_float16", wrapped=True)
    assert [note.code for note in plan(found).notes] == ["wrapper-lost"]
    assert plan(found).is_empty
    made = plan(found, loss_scale=LossScales.KEEP)
    assert [edit.after["class_name"] for edit in made.edits] == ["LossScaleOptimizer"]  # type: ignore[index,call-overload]  # an object
    assert made.state is None
    assert not plan(archive(KERAS3_ADAM, "mixed_float16", wrapped=False)).notes


def test_keras3_has_no_fixed_scale() -> None:
    """
    A fixed loss scale becomes the optimizer's ``loss_scale_factor`` in Keras 3, and the state is
    unchanged.
    """
    from policytool.migration.planning.optimizers import Dialect, wrap
    from policytool.releases.policy import Fixed

    changed = wrap(KERAS3_ADAM, Fixed(value=128.0), Dialect(keras3=True, archive=True))
    assert changed == {**KERAS3_ADAM, "config": {"name": "adam", "loss_scale_factor": 128.0}}


def test_plan_never_changes_the_loss_scale_factor() -> None:
    """
    A plan never changes ``loss_scale_factor`` of Keras 3, because the user set it; it adds a note
    if the factor no longer matters.
    """
    factor = {**KERAS3_ADAM, "config": {"name": "adam", "loss_scale_factor": 128.0}}
    made = plan(archive(factor, "mixed_float16", wrapped=False), "float32")
    assert "loss-scale-factor" in {note.code for note in made.notes}
    assert all(edit.path for edit in made.edits)
    assert all(
        edit.path for edit in plan(archive(factor, "float32", wrapped=False), "mixed_float16").edits
    )
