"""Models that compute incorrect values (PT3)."""

from __future__ import annotations

import json
import shutil
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np

from policytool.rules import AuditOptions, Device
from tests.helpers import changed_fixtures
from tests.helpers.changed_fixtures import h5, h5_chain, h5_layers, h5_values
from tests.helpers.paths import FIXTURES
from tests.rules.faults.fault import Fault

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rules.faults.fault import Make

Config = dict[str, Any]
_DT_HALF: Final = 19
"""TensorFlow's number of float16."""

WEIGHTS: Final = AuditOptions(weights=True)
ON_CPU: Final = AuditOptions(device=Device.CPU)
ON_GPU: Final = AuditOptions(device=Device.GPU)
MIXED: Final = "tf2.15/global_mixed_float16.h5"
COMPILED: Final = "tf2.15/adam_autowrap_mf16.h5"
NORMALISED: Final = "tf2.15/preprocessing.h5"
CHAIN: Final = "tf2.15/sequential.h5"
_KERNEL: Final = "dense_a/dense_a/kernel:0"
_GAMMA: Final = "norm/norm/gamma:0"


def _half_signatures(folder: Path) -> Path:
    """Write a SavedModel without Keras metadata, whose signatures return float16."""

    def change(message: Any) -> None:
        for signature in message.meta_graphs[0].signatures:
            for output in signature.value.outputs:
                output.value.dtype = _DT_HALF

    return changed_fixtures.saved_model(folder, "keras3.15/global_mixed_float16.export", change)


def _softmax_before_output(folder: Path) -> Path:
    """Write a model with a float32 layer after a float16 softmax."""

    def change(config: Config) -> None:
        changed_fixtures.layer(config, "probabilities")["dtype"] = "mixed_float16"
        added = {"name": "shown", "trainable": True, "dtype": "float32", "activation": "linear"}
        config["config"]["layers"].append(
            {
                "class_name": "Activation",
                "config": added,
                "name": "shown",
                "inbound_nodes": [[["probabilities", 0, 0, {}]]],
            }
        )
        config["config"]["output_layers"] = [["shown", 0, 0]]

    return h5(folder, COMPILED, change)


def _normalization_of_a_package(folder: Path) -> Path:
    """Write a model with a GroupNormalization that is not of Keras."""

    def change(config: Config) -> None:
        for entry in config["config"]["layers"]:
            if entry["class_name"] == "GroupNormalization":
                entry["module"] = "mypackage.layers"

    return changed_fixtures.keras_zip(folder, "tf2.15/preprocessing.keras", change)


def _config(fixture: str, layer: str, **values: object) -> Make:
    """Return what writes a fixture with other arguments of a layer."""
    return partial(h5_layers, name=fixture, change=lambda found: found[layer].update(values))


def _chain(*entries: tuple[str, Config]) -> Make:
    return lambda folder: h5_chain(folder, CHAIN, *entries)


def _values(**values: float | tuple[float]) -> Make:
    """Return what writes a model with other values of its kernel or gamma."""
    names = {"kernel": _KERNEL, "gamma": _GAMMA}
    stored = {names[name]: value for name, value in values.items()}
    return lambda folder: h5_values(h5(folder, MIXED, lambda _: None), stored)


def _custom_weights(folder: Path) -> Path:
    def change(config: Config) -> None:
        for entry in config["config"]["layers"]:
            if entry["config"]["name"] == "dense_a":
                entry["class_name"] = "Mine>Dense"

    return h5_values(h5(folder, MIXED, change), {_KERNEL: (70000.0,)})


def _pure_weights(folder: Path) -> Path:
    def change(found: dict[str, Config]) -> None:
        for layer in found.values():
            layer["dtype"] = "float16"

    return h5_values(h5_layers(folder, MIXED, change), {_KERNEL: (70000.0,), _GAMMA: 70000.0})


def _infinite_weights(folder: Path) -> Path:
    """Write a file that contains only weights."""
    path = folder / "only.weights.h5"
    shutil.copyfile(FIXTURES / "keras3.15/weights_only.weights.h5", path)
    with h5py.File(path, "r+") as file:
        file["layers/dense/vars/0"][...] = np.inf
    return path


def _embedding(rows: int) -> Make:
    return _chain(
        ("Reshape", {"target_shape": [6, 1]}), ("Embedding", {"input_dim": rows, "output_dim": 2})
    )


def _half_input(folder: Path) -> Path:
    """Write an Embedding after an input of float16."""
    path = h5_chain(folder, CHAIN, ("Embedding", {"input_dim": 30000, "output_dim": 2}))
    with h5py.File(path, "r+") as file:
        config = json.loads(file.attrs["model_config"])
        config["config"]["layers"][0]["config"]["dtype"] = "float16"
        file.attrs["model_config"] = json.dumps(config)
    return path


def _endless_optimizer(folder: Path) -> Path:
    """Write a model with an optimizer in twenty wrappers, which no release writes."""
    endless: Config = {"class_name": "Adam", "config": {}}
    for _ in range(20):
        endless = {"class_name": "LossScaleOptimizer", "config": {"optimizer": endless}}
    path = h5_layers(folder, COMPILED, lambda found: found["dense_a"].update(dtype="float16"))
    with h5py.File(path, "r+") as file:
        file.attrs["training_config"] = json.dumps({"optimizer_config": endless})
    return path


_CONSTANTS: Final[tuple[tuple[str, Config], ...]] = (
    ("Masking", {"mask_value": -1e9}),
    ("Masking", {"mask_value": 1e-9}),
    ("Rescaling", {"scale": 1.0, "offset": 1e-9}),
    ("Rescaling", {"scale": [1.0, 1e-9]}),
    ("ReLU", {"max_value": 1e6}),
    ("ReLU", {"negative_slope": 1e6}),
    ("LeakyReLU", {"alpha": 65519.0}),
    ("Masking", {"mask_value": 0.0}),
)
_STATISTICS: Final[tuple[Config, ...]] = (
    {"mean": 0.5, "variance": 2.0},
    {"mean": [[0.5, 100.0]], "variance": [[2.0, 1.0]]},
    {"mean": 1e6, "variance": 1e12},  # constant-out-of-range
    {"mean": None, "variance": None},
)
_POOL_3D: Final = _chain(("MaxPooling3D", {"pool_size": [2, 2, 2]}))
_SOFTPLUS: Final = _chain(
    ("Dense", {"units": 2, "activation": "softplus", "dtype": "mixed_bfloat16"})
)
_HALF_LAYER: Final = _config(COMPILED, "dense_a", dtype="float16")
FAULTS: Final = (
    Fault("PT301", "signatures that return float16", _half_signatures),
    Fault("PT302", "softmax before the output", _softmax_before_output),
    Fault(
        "PT303",
        "a target of Keras 2",
        lambda _: FIXTURES / "keras3.15/preprocessing.keras",
        AuditOptions(targets=("tf2.15",)),
    ),
    Fault("PT303", "a class of another package", _normalization_of_a_package),
    Fault(
        "PT303",
        "images of known and unknown size",
        _chain(("GlobalAveragePooling2D", {}), ("AveragePooling2D", {"pool_size": [64, 64]})),
    ),
    *(
        Fault("PT303", f"Normalization {numbers}", _chain(("Normalization", numbers)))
        for numbers in _STATISTICS
    ),
    *(
        Fault("PT304", f"{layer} {epsilon}", _config(NORMALISED, layer, epsilon=epsilon))
        for layer, epsilon in (
            ("group_norm", 1e-12),
            ("group_norm", 1e-5),
            ("batch_norm", 1e-12),
        )
    ),
    *(
        Fault(
            "PT304",
            f"RMSNormalization for {release}",
            _chain(("RMSNormalization", {"epsilon": 1e-12})),
            AuditOptions(targets=(release,)),
        )
        for release in ("keras3.9", "keras3.12")
    ),
    Fault("PT304", "custom class 1e-12", _chain(("Theirs", {"epsilon": 1e-12}))),
    Fault("PT304", "Adam with float16 variables", _HALF_LAYER),
    Fault("PT304", "optimizer in twenty wrappers", _endless_optimizer),
    Fault("PT305", "a kernel with 70000", _values(kernel=(70000.0,)), WEIGHTS),
    Fault(
        "PT305", "a gamma of 70000, a kernel of 65519", _values(gamma=7e4, kernel=65519.0), WEIGHTS
    ),
    Fault("PT305", "a kernel with 70000, without --weights", _values(kernel=(70000.0,))),
    Fault("PT305", "a kernel with 70000 in a custom class", _custom_weights, WEIGHTS),
    Fault("PT305", "a kernel and a gamma under float16", _pure_weights, WEIGHTS),
    *(
        Fault("PT306", f"a kernel of {value}", _values(kernel=value), WEIGHTS)
        for value in (1e-9, 1e-6, 1e-4, 0.0)
    ),
    Fault("PT306", "a kernel with 1e-9", _values(kernel=(1e-9,)), WEIGHTS),
    Fault("PT307", "a kernel with NaN", _values(kernel=(float("nan"),)), WEIGHTS),
    Fault("PT307", "infinite values in a file of weights", _infinite_weights, WEIGHTS),
    *(Fault("PT308", f"{rows} ids", _embedding(rows)) for rows in (2048, 30000)),
    Fault("PT308", "30000 ids from an input of float16", _half_input),
    Fault("PT309", "compiled, with a layer of float16", _HALF_LAYER),
    Fault(
        "PT309",
        "a layer with another policy than the model",
        _config("tf2.3/exp_per_layer.h5", "dense_none", dtype="float16"),
    ),
    *(
        Fault("PT310", f"{name}{suffix}", make, options)
        for name, make in (
            ("MaxPooling3D in float16", _POOL_3D),
            ("softplus in bfloat16", _SOFTPLUS),
        )
        for suffix, options in (
            ("", AuditOptions()),
            (" on a CPU", ON_CPU),
            (" on a GPU", ON_GPU),
        )
    ),
    *(
        Fault("PT311", f"{name}{suffix}", partial(lambda name, _: FIXTURES / name, name), options)
        for name, suffix, options in (
            (MIXED, "", AuditOptions()),
            (MIXED, " on a GPU", ON_GPU),
            ("keras3.0/wrappers_mixed.json", " on a CPU", ON_CPU),
        )
    ),
    Fault("PT312", "rescaling by 1e6", _config(NORMALISED, "rescaling", scale=1e6)),
    *(
        Fault(
            "PT312",
            f"{class_name} {config} in {dtype}",
            _chain((class_name, {**config, "dtype": dtype})),
        )
        for class_name, config in _CONSTANTS
        for dtype in ("mixed_float16", "mixed_bfloat16", "float32")
    ),
)
