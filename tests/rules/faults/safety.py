"""Models that harm the machine that loads them, by their configs and files (PT6)."""

from __future__ import annotations

import zipfile
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import h5py
import pytest

from policytool.support.text import jsontext
from tests.helpers import changed_fixtures
from tests.helpers.polyglots import HARMLESS_H5, hostile_archive
from tests.helpers.small_models import instance
from tests.rules.faults.fault import Fault

if TYPE_CHECKING:
    from pathlib import Path

    from tests.rules.faults.fault import Make

Config = dict[str, Any]
KERAS3: Final = "keras3.15/global_mixed_float16.keras"
COMPILED: Final = "keras3.15/adam_autowrap_mf16.keras"
OPS: Final = "tf2.15/tf_op_layers.h5"
_WORDS: Final = "keras3.15/string_lookup.keras"
_H5: Final = "tf2.15/global_mixed_float16.h5"
_PAYLOAD: Final = instance("__lambda__", code="4wEAAAA=", defaults=None, closure=None)
_LAMBDA: Final = instance(
    "Lambda",
    name="hidden",
    trainable=True,
    function=["4wEAAAA=", None, None],
    function_type="lambda",
)


def _placed(folder: Path, *, name: str, pointer: str, value: object) -> Path:
    """Write a ``.keras`` fixture with a value put somewhere into its config."""

    def put(config: Config) -> None:
        holder, key = jsontext.place(config, pointer)
        if isinstance(holder, list) and key == len(holder):
            holder.append(value)
        else:
            holder[key] = value

    return changed_fixtures.keras_zip(folder, name, put)


def placed(pointer: str, value: object, name: str = KERAS3) -> Make:
    """Return what writes a fixture with a value put somewhere into its config."""
    return partial(_placed, name=name, pointer=pointer, value=value)


def activation(module: str, name: str, *, kind: str = "function") -> Make:
    """Return what writes a model with a function or a class as an activation."""
    value = (
        {"class_name": "function", "config": name, "registered_name": name}
        if kind == "function"
        else {"class_name": name, "config": {}}
    )
    return placed("/config/layers/2/config/activation", {"module": module, **value})


def _loss(value: object) -> Make:
    """Return what writes a compiled model with another loss."""
    return lambda folder: changed_fixtures.h5_training(
        folder, "tf2.15/adam_autowrap_mf16.h5", loss=value
    )


def _named_function(**values: str) -> Make:
    """Return what writes a Lambda that refers to a function by its name."""
    return partial(
        changed_fixtures.h5_layers,
        name="tf2.15/lambda.h5",
        change=lambda layers: layers["double"].update(function_type="function", **values),
    )


def op_layer(function: str) -> Make:
    """Return what writes a model with a layer that calls a function of TensorFlow."""

    def rename(config: Config) -> None:
        entry = next(
            entry for entry in config["config"]["layers"] if entry["class_name"] == "TFOpLambda"
        )
        entry["config"]["function"] = function

    return partial(changed_fixtures.h5, name=OPS, change=rename)


def _vocabulary(folder: Path) -> Path:
    def point(config: Config) -> None:
        entry = next(
            entry for entry in config["config"]["layers"] if entry["class_name"] == "StringLookup"
        )
        entry["config"]["vocabulary"] = "/etc/passwd"

    return changed_fixtures.keras_zip(folder, _WORDS, point)


def _class(class_name: str, **config: object) -> Make:
    """Return what writes a model whose second layer has this class."""
    return placed(
        "/config/layers/2",
        {"class_name": class_name, "config": {"name": "x", "trainable": True, **config}},
    )


def _outside(folder: Path) -> Path:
    path = changed_fixtures.h5(folder, _H5, lambda _: None)
    with h5py.File(path, "a") as file:
        layer = file["model_weights/dense_a"]
        layer["soft"] = h5py.SoftLink("/nowhere")
        layer["outside"] = h5py.ExternalLink("canary.h5", "/x")
        layer.create_dataset("elsewhere", (4,), "float32", external=[("canary.bin", 0, 16)])
        layout = h5py.VirtualLayout((4,), "float32")
        layout[:] = h5py.VirtualSource("canary.h5", "x", (4,))
        layer.create_virtual_dataset("virtual", layout)
    return path


def _doubled(folder: Path) -> Path:
    path = changed_fixtures.keras_zip(folder, KERAS3, lambda _: None)
    with zipfile.ZipFile(path, "a") as archive:
        text = archive.read("config.json").decode()
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("config.json", text.replace('{"', '{"module": "os", "', 1))
        archive.writestr("../../evil.txt", b"x")
    return path


def _claiming(folder: Path, *, shape: tuple[int, ...], **how: Any) -> Path:
    """Write a model with a dataset that is larger than the file."""
    path = changed_fixtures.h5(folder, _H5, lambda _: None)
    with h5py.File(path, "a") as file:
        file["model_weights/dense_a"].create_dataset("large", shape, "float32", **how)
    return path


def _ambiguous(folder: Path) -> Path:
    path = folder / "model.keras"
    path.write_bytes(HARMLESS_H5 + hostile_archive("policytool-marker"))
    return path


def _layer_name(name: str) -> Fault:
    return Fault("PT608", repr(name), placed("/config/layers/2/config/name", name))


def _input_of(layer: str, call: int = 0) -> Fault:
    return Fault(
        "PT611",
        f"the second layer has the output of call {call} of {layer} as input",
        placed("/config/layers/1/inbound_nodes/0/args/0/config/keras_history", [layer, call, 0]),
    )


_CHUNKS: Final = {"chunks": (1000, 1000)}
_FOCAL: Final = {
    "module": "mypackage.losses",
    "class_name": "Focal",
    "config": {},
    "registered_name": "mypackage>Focal",
}
FAULTS: Final = (
    *(
        Fault("PT601", f"code at {pointer}", placed(pointer, value, COMPILED))
        for pointer, value in (
            ("/config/layers/1/config/kernel_initializer", _PAYLOAD),
            ("/config/layers/1/config/activation", _PAYLOAD),
            ("/config/layers/1/config/anything", _PAYLOAD),
            ("/compile_config/loss", _PAYLOAD),
            ("/compile_config/metrics", [_PAYLOAD]),
            ("/compile_config/optimizer/config/learning_rate", _PAYLOAD),
        )
    ),
    *(
        Fault(
            "PT601",
            f"a Lambda in a {wrapper}",
            placed(
                "/config/layers/2",
                {
                    "class_name": wrapper,
                    "config": {"name": "outer", "trainable": True, slot: _LAMBDA},
                },
            ),
        )
        for wrapper, slot in (("TimeDistributed", "layer"), ("RNN", "cell"))
    ),
    Fault("PT601", "code as the loss in HDF5", _loss(_PAYLOAD)),
    Fault(
        "PT601",
        "a list of numbers",
        placed(
            "/config/layers/1/config/kernel_initializer",
            {"class_name": "Constant", "config": {"value": [0.0, 0.0, 0.0]}},
        ),
    ),
    Fault("PT603", "a Lambda that calls a function", _named_function(function="double")),
    Fault(
        "PT602",
        "a Lambda that calls a harmful function",
        _named_function(function="Popen", module="subprocess"),
    ),
    Fault("PT602", "os.system as an activation", activation("os", "system")),
    Fault("PT603", "a custom loss", _loss(_FOCAL)),
    Fault("PT604", "the path of a vocabulary", _vocabulary),
    Fault("PT604", "TFSMLayer", _class("TFSMLayer", filepath="/srv/evil", call_endpoint="serve")),
    Fault("PT604", "TFSMLayer with a long path", _class("TFSMLayer", filepath="/" + "x" * 10**6)),
    Fault(
        "PT604",
        "TorchModuleWrapper",
        _class("TorchModuleWrapper", module="gAJj...", output_shape=None),
    ),
    Fault("PT604", "KerasLayer", _class("KerasLayer", handle="https://tfhub.dev/x/1")),
    Fault(
        "PT604",
        "TextVectorization",
        _class("TextVectorization", vocabulary="https://example.org/words"),
    ),
    Fault("PT606", "links and external data", _outside),
    Fault("PT607", "doubled and escaping members", _doubled),
    *map(
        _layer_name,
        (
            *(
                "../../evil",
                "/etc/cron.d/x",
                "..\\x",
                "a/../../x",
                "C:\\x",
                "file://x",
                "..",
                "a\0b",
            ),
            *("conv1/bn", "conv5_block32_concat", "a..b", "...", "tf.nn.softmax", "x:0"),
            "version 1.2",
        ),
    ),
    Fault("PT608", "in the graph", placed("/config/layers/2/name", "../../evil")),
    *(
        Fault("PT610", name, partial(_claiming, shape=(size, size), **how))
        for name, size, how in (
            ("160 GB in chunks", 200_000, _CHUNKS),
            ("40 GB in one block", 100_000, {}),
            ("40 GB in compressed chunks", 100_000, {**_CHUNKS, "compression": "gzip"}),
            ("4 MB in chunks", 1000, _CHUNKS),
        )
    ),
    _input_of("dropout"),
    _input_of("norm"),
    _input_of("features", 1),
    _input_of("features"),
    Fault("PT612", "an unknown function", op_layer("map_fn")),
    Fault("PT613", "HDF5 and an archive in one file", _ambiguous),
)
