"""
Copies of models whose config is edited in one way, as people do it to load a model elsewhere: a key
is left out, added or renamed, a policy is written in another form, or a layer is left out.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import TYPE_CHECKING, Any, Final

import h5py

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from random import Random

KINDS: Final = (
    *("key missing", "key missing", "key added", "key added", "key renamed", "policy", "policy"),
    *("class renamed", "module", "registered name", "layer missing", "build config"),
)
ADDED: Final[dict[str, Any]] = {
    "groups": 1,
    "time_major": False,
    "quantization_config": None,
    "optional": False,
    "ragged": False,
    "sparse": False,
    "implementation": 2,
    "batch_input_shape": [None, 4],
    "input_dim": 4,
    "autocast": True,
    "synchronized": False,
    "lora_rank": None,
    "seed": None,
    "renorm": False,
    "batch_size": None,
    "data_format": "channels_last",
    "keepdims": False,
    "use_cudnn": "auto",
    "my_option": 1,
}
"""Keys of some layers in some releases, and their values."""

RENAMED: Final = {
    "batch_shape": "batch_input_shape",
    "batch_input_shape": "batch_shape",
    "lr": "learning_rate",
    "learning_rate": "lr",
    "units": "output_dim",
    "alpha": "negative_slope",
    "negative_slope": "alpha",
    "dtype": "dtype_policy",
}


def edited_copy(source: Path, copy: Path, kind: str, draw: Random) -> bool:
    """Write an edited copy of a model; return whether its config could be edited so."""
    if source.suffix == ".json":
        config = json.loads(source.read_text(encoding="utf-8"))
        is_edited = _edit(config, kind, draw)
        copy.write_text(json.dumps(config), encoding="utf-8")
        return is_edited
    if source.suffix == ".keras":
        with zipfile.ZipFile(source) as archive:
            members = {info.filename: archive.read(info) for info in archive.infolist()}
        config = json.loads(members["config.json"])
        is_edited = _edit(config, kind, draw)
        members["config.json"] = json.dumps(config).encode()
        with zipfile.ZipFile(copy, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return is_edited
    shutil.copyfile(source, copy)
    with h5py.File(copy, "r+") as file:
        text = file.attrs["model_config"]
        config = json.loads(text)
        is_edited = _edit(config, kind, draw)
        written = json.dumps(config)
        file.attrs["model_config"] = written.encode() if isinstance(text, bytes) else written
    return is_edited


def _layers(config: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of the layers in a config, at any depth."""
    if isinstance(config, dict):
        inner = config.get("config")
        if "class_name" in config and isinstance(inner, dict) and ("dtype" in inner):
            yield config
        for value in config.values():
            yield from _layers(value)
    elif isinstance(config, list):
        for value in config:
            yield from _layers(value)


def _edit(config: dict[str, Any], kind: str, draw: Random) -> bool:
    if kind == "layer missing":
        return _leave_out(config, draw)
    objects = [one for one in _layers(config) if one["class_name"] != "__keras_tensor__"]
    if not objects:
        return False
    chosen = draw.choice(objects)
    if kind in ("class renamed", "module", "registered name", "build config"):
        return _edit_object(chosen, kind, draw)
    arguments = chosen["config"]
    match kind:
        case "key missing":
            del arguments[draw.choice(sorted(arguments))]
        case "key added":
            key = draw.choice(sorted(ADDED.keys() - arguments.keys()))
            arguments[key] = ADDED[key]
        case "key renamed":
            keys = sorted(arguments.keys() & RENAMED.keys())
            if not keys:
                return False
            key = draw.choice(keys)
            arguments[RENAMED[key]] = arguments.pop(key)
        case "policy":
            arguments["dtype"] = _other_policy(arguments["dtype"], draw)
    return True


def _edit_object(serialized: dict[str, Any], kind: str, draw: Random) -> bool:
    """Edit the keys beside the config of a layer; return whether it has the key."""
    name = serialized["class_name"]
    key, values = {
        "class renamed": ("class_name", (name.lower(), f"My{name}", f"Custom>{name}")),
        "module": ("module", ("keras.src.layers", "tf_keras.layers", "keras.layers", None)),
        "registered name": ("registered_name", (name, f"Custom>{name}")),
        "build config": ("build_config", (None,)),
    }[kind]
    if key not in serialized:
        return False
    serialized[key] = draw.choice(values)
    if kind == "build config":
        del serialized[key]
    return True


def _other_policy(written: Any, draw: Random) -> Any:
    name = written if isinstance(written, str) else "float32"
    if isinstance(written, dict):
        name = (written.get("config") or {}).get("name") or name
    return draw.choice(
        (
            name,
            None,
            {"class_name": "Policy", "config": {"name": name}},
            {
                "module": "keras",
                "class_name": "DTypePolicy",
                "config": {"name": name},
                "registered_name": None,
            },
            {
                "module": "keras.mixed_precision",
                "class_name": "Policy",
                "config": {"name": name},
                "registered_name": None,
            },
            {"class_name": "PolicyV1", "config": {"name": name, "loss_scale": None}},
            "mixed_float16",
            "float16",
        )
    )


def _leave_out(config: dict[str, Any], draw: Random) -> bool:
    arguments = config.get("config")
    layers = arguments.get("layers") if isinstance(arguments, dict) else None
    if not isinstance(layers, list) or len(layers) < 3:  # an input and two others
        return False
    del layers[draw.randrange(1, len(layers))]
    return True
