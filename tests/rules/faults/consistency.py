"""Models whose parts contradict each other (PT4)."""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np

from policytool.formats.document import Signature
from policytool.rules import AuditOptions
from policytool.support.text import protobuf_messages
from tests.helpers import changed_fixtures, presets
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import keras_zip, sequential
from tests.rules.faults.fault import Fault

if TYPE_CHECKING:
    from pathlib import Path

MIXED: Final = "tf2.15/global_mixed_float16.h5"
SAVED: Final = "tf2.15/global_mixed_float16"


def _stored_as(folder: Path, *, dtype: str) -> Path:
    """Write a model whose first layer stores its variables in another dtype."""
    path = changed_fixtures.h5(folder, MIXED, lambda _: None)
    with h5py.File(path, "a") as file:
        for variable in ("kernel:0", "bias:0"):
            key = f"model_weights/dense_a/dense_a/{variable}"
            values = file[key][()].astype(dtype)
            del file[key]
            file[key] = values
    return path


def _other_metadata(folder: Path) -> Path:
    """Write a SavedModel whose layers have another policy than its graph."""
    target = folder / "saved"
    shutil.copytree(FIXTURES / SAVED, target)
    file = target / "keras_metadata.pb"
    before, after = b'{"name": "mixed_float16"}', b'{"name":"mixed_bfloat16"}'
    file.write_bytes(file.read_bytes().replace(before, after))
    return target


def _differing_copies(folder: Path) -> Path:
    """Write a SavedModel whose two copies of the metadata differ."""
    target = folder / "saved"
    shutil.copytree(FIXTURES / "tf2.5/global_mixed_float16", target)
    file = target / "keras_metadata.pb"
    message: Any = protobuf_messages.parse("KerasMetadata", file.read_bytes())
    for node in message.nodes:
        node.metadata = node.metadata.replace(
            b'"activation": "softmax"', b'"activation": "sigmoid"'
        )
    file.write_bytes(message.SerializeToString())
    return target


def _undeclared_quantization(folder: Path) -> Path:
    weights = folder / "weights.h5"
    with h5py.File(weights, "w") as file:
        file["layers/dense/vars/0"] = np.zeros((6, 2), dtype="int8")
    members = {
        "config.json": json.dumps(sequential()).encode(),
        "metadata.json": b'{"keras_version": "3.15.1"}',
        "model.weights.h5": weights.read_bytes(),
    }
    return keras_zip(folder / "model.keras", members)


def _signature(name: str, inputs: dict[str, str], outputs: dict[str, str]) -> Signature:
    return Signature(name=name, inputs=inputs, outputs=outputs)


def _baseline(name: str, *signatures: Signature) -> Fault:
    return Fault(
        "PT404",
        name,
        lambda _: FIXTURES / SAVED,
        AuditOptions(signatures={"model": signatures}),
    )


def _forbidden(name: str, *policies: str, is_fixed: bool = True) -> Fault:
    return Fault(
        "PT413",
        f"{name} without {' and '.join(policies)}",
        lambda _: FIXTURES / name,
        AuditOptions(forbidden=policies),
        is_fixed=is_fixed,
    )


def _half_operations(folder: Path) -> Path:
    """Write a model whose layers compute in float32, and whose operations cast to float16."""

    def change(config: dict[str, Any]) -> None:
        for layer in config["config"]["layers"]:
            if isinstance(layer["config"].get("dtype"), dict):
                layer["config"]["dtype"] = "float32"
            elif layer["class_name"] == "Cast":
                layer["config"]["dtype"] = "float16"

    return changed_fixtures.keras_zip(folder, "keras3.15/keras_ops.keras", change)


def _left_over_shard(folder: Path) -> Path:
    """Write a preset with a shard that its weights file replaced."""
    path = presets.write_recorded(folder / "preset", "Llama", "mixed_bfloat16")
    shutil.copyfile(path / presets.WEIGHTS, path / "model_00000.weights.h5")
    return path


def _mixed_task(folder: Path) -> Path:
    """Write a preset with a task in mixed_bfloat16, and a quantized layer of the task."""
    path = presets.write_recorded(folder / "preset", "Llama", "mixed_bfloat16")
    return presets.add_task(path, {"layers/dense": ["logits", [8, 3, "int8"], [3, "float32"]]})


FAULTS: Final = (
    Fault(
        "PT413",
        "operations without mixed_float16",
        _half_operations,
        AuditOptions(forbidden=("mixed_float16",)),
    ),
    _forbidden("keras3.15/per_layer.keras", "float16"),
    _forbidden("keras3.15/default_float32.keras", "float32", is_fixed=False),
    _forbidden("keras3.15/global_mixed_float16.export", "mixed_float16", is_fixed=False),
    *(
        Fault("PT401", f"{dtype} variables", partial(_stored_as, dtype=dtype))
        for dtype in ("float16", "float64")
    ),
    Fault(
        "PT401",
        "bfloat16 stored as float32",
        partial(changed_fixtures.h5_policies, name=MIXED, dense_a="bfloat16"),
    ),
    Fault("PT402", "layers with another policy", _other_metadata),
    _baseline(
        "changed dtypes",
        _signature("serving_default", {"features": "float32"}, {"probabilities": "float16"}),
    ),
    _baseline(
        "a signature that is missing, and other inputs",
        _signature("gone", {}, {}),
        _signature("serving_default", {"old": "float32"}, {}),
    ),
    _baseline("a new signature", _signature("gone", {}, {})),
    Fault("PT406", "two copies that differ", _differing_copies),
    Fault("PT407", "int8 variables", _undeclared_quantization),
    Fault(
        "PT410",
        "an int8 backbone",
        lambda folder: presets.write_recorded(folder / "preset", "Llama", "int8"),
    ),
    Fault("PT411", "a shard that is not read", _left_over_shard),
    Fault("PT412", "a task in mixed_bfloat16 with a quantized layer", _mixed_task),
)
