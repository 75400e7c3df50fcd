"""Models that releases fail to load (PT5)."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final

from policytool.rules import AuditOptions
from tests.helpers.damaged_variables import damaged_copy
from tests.helpers.paths import FIXTURES
from tests.rules.faults.fault import Fault, targeted

if TYPE_CHECKING:
    from pathlib import Path


def _first_layer(folder: Path, **values: object) -> Path:
    """Write a model with other arguments of its first Dense."""
    source = FIXTURES / "tf2.15/default_float32.json"
    config = json.loads(source.read_text(encoding="utf-8"))
    config["config"]["layers"][1]["config"].update(values)
    path = folder / "model.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def _exported(name: str, *exporters: str, is_fixed: bool = False) -> Fault:
    return Fault(
        "PT508",
        f"{name} for {', '.join(exporters)}",
        lambda _: FIXTURES / name,
        AuditOptions(targets=("keras3.15",), target_names=exporters),
        is_fixed=is_fixed,
    )


def _damaged(folder: Path, name: str, kind: str) -> Path:
    """Write a copy of a fixture whose variables are damaged."""
    path = folder / f"model{(FIXTURES / name).suffix}"
    assert damaged_copy(FIXTURES / name, path, kind, Random(0))  # noqa: S311  # no secret
    return path


_FUNCTION: Final = {
    "module": "builtins",
    "class_name": "function",
    "config": "my_activation",
    "registered_name": "function",
}
_FOR_TF: Final = AuditOptions(targets=("tf2.15",))
FAULTS: Final = (
    targeted("PT501", "keras3.15/keras_ops.h5", "keras3.6"),
    targeted("PT501", "keras3.15/subclassed.h5", "tf2.15"),
    targeted("PT501", "tf2.15/per_layer.h5", "tf2.15"),
    targeted("PT501", "keras3.15/sharded.weights.json", "tf2.15", "keras3.6"),
    targeted("PT501", "tf2.5/mha.json", "tf2.3", "keras3.15"),
    targeted("PT501", "tf2.9/weights_only.ckpt.index", "tf2.15", "keras3.15"),
    Fault(
        "PT502",
        "an argument that no release has",
        partial(_first_layer, kernel_scaling=2),
        _FOR_TF,
    ),
    Fault(
        "PT502",
        "the name of a custom activation",
        partial(_first_layer, activation="my_activation"),
        _FOR_TF,
    ),
    Fault(
        "PT502",
        "a serialized custom activation",
        partial(_first_layer, activation=_FUNCTION),
        _FOR_TF,
    ),
    targeted("PT504", "keras2.2.4/rnn.h5", "tf2.15", "keras3.15"),
    _exported("keras3.15/global_mixed_bfloat16.keras", "onnx", "openvino", is_fixed=True),
    _exported("keras3.15/rnn.keras", "litert"),
    _exported("keras3.15/keras_ops.keras", "onnx"),
    *(
        Fault("PT506", f"{kind} in {name}", partial(_damaged, name=name, kind=kind))
        for name, kind in (
            ("keras3.15/sequential.keras", "no weights"),
            ("keras3.15/sequential.keras", "shape"),
            ("keras3.15/sequential.h5", "one more"),
            ("tf2.15/sequential.h5", "no weights"),
            ("tf2.15/sequential.h5", "group missing"),
        )
    ),
)
