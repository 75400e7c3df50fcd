"""Models whose training configurations have faults (PT2)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import h5py

from policytool.rules import AuditOptions
from tests.helpers import changed_fixtures
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import instance
from tests.rules.faults.fault import Fault, targeted

if TYPE_CHECKING:
    from pathlib import Path

Config = dict[str, object]
ADAM: Final[Config] = instance("Adam", name="Adam", learning_rate=0.001, decay=0.0)
_RESTORING: Final = AuditOptions(targets=("tf2.15", "tf_keras2.21", "keras3.15"))


def _scaled(*, initial: float = 1024.0, is_dynamic: bool = True) -> Config:
    """Return an Adam whose losses are scaled."""
    return instance(
        "LossScaleOptimizer",
        inner_optimizer=ADAM,
        dynamic=is_dynamic,
        initial_scale=initial,
        dynamic_growth_steps=50,
    )


def _default_scale(folder: Path) -> Path:
    """Write a model whose policy has the loss scale that `compile` sets."""
    path = changed_fixtures.h5_training(folder, "tf2.3/exp_mf16_dynamic_custom.h5")
    text = '"initial_loss_scale": 1024.0, "increment_period": 50, "multiplier": 4.0'
    with h5py.File(path, "r+") as file:
        del file.attrs["training_config"]
        config = file.attrs["model_config"]
        assert text in config
        file.attrs["model_config"] = config.replace(
            text, '"initial_loss_scale": 32768.0, "increment_period": 2000, "multiplier": 2.0'
        )
    return path


def _optimizer(
    rule: str, name: str, fixture: str, optimizer: Config, *, is_fixed: bool = False
) -> Fault:
    make = partial(changed_fixtures.h5_training, name=fixture, optimizer_config=optimizer)
    return Fault(rule, name, make, is_fixed=is_fixed)


_FIXED_SCALE: Final = "tf2.3/exp_mf16_fixed128.h5"
_UNCOMPILED: Final = "tf2.1/exp_mf16_fixed128_uncompiled.json"
FAULTS: Final = (
    _optimizer("PT201", "optimizer without a loss scale", _FIXED_SCALE, ADAM, is_fixed=True),
    _optimizer(
        "PT201",
        "optimizer that cannot be wrapped",
        _FIXED_SCALE,
        {"class_name": "Custom>Lion", "config": {"name": "Lion", "is_legacy_optimizer": False}},
    ),
    _optimizer("PT201", "optimizer with another loss scale", _FIXED_SCALE, _scaled()),
    targeted("PT201", _UNCOMPILED, "tf2.2", "tf2.3"),
    targeted("PT201", _UNCOMPILED, "tf2.3", "tf2.4"),
    Fault("PT202", "loss scale of compile", _default_scale),
    Fault(
        "PT203",
        "optimizer without a loss scale",
        lambda _: FIXTURES / "keras3.15/adam_autowrap_mf16.keras",
        is_fixed=True,
    ),
    _optimizer(
        "PT204",
        "loss scale of one",
        "tf2.5/default_float32_compiled.h5",
        _scaled(initial=1.0, is_dynamic=False),
    ),
    _optimizer("PT204", "dynamic loss scale", "tf2.5/default_float32_compiled.h5", _scaled()),
    *(
        targeted("PT205", name, "tf2.3", "tf2.15", "keras3.15")
        for name in (
            "tf2.4/adam_autowrap_mf16.h5",
            "tf2.3/lso_exp_customdyn.h5",
            "tf2.0/adam_autowrap_mf16.h5",
            "keras2.2.4/default_float32_compiled.h5",
            "tf2.15/default_float32_compiled.h5",
        )
    ),
    *(
        targeted("PT206", name, *_RESTORING.targets)
        for name in (
            "tf2.15/lso_fixed128.h5",
            "tf2.15/lso_legacy_fixed128.keras",
            "keras3.15/adam_autowrap_mf16.keras",
            "tf_keras2.21/adam_autowrap_mf16.h5",
            "tf2.5/lso_fixed128.h5",
        )
    ),
    Fault(
        "PT206",
        "Keras 3 restores the number of steps",
        partial(
            changed_fixtures.h5_training,
            name="keras3.15/default_float32_compiled.h5",
            loss="mean_squared_error",
        ),
        _RESTORING,
    ),
    _optimizer(
        "PT207",
        "loss scale of an unknown class",
        "tf2.3/lso_dynamic.h5",
        instance(
            "LossScaleOptimizer", optimizer=ADAM, loss_scale={"class_name": "MyScale", "config": {}}
        ),
    ),
)
