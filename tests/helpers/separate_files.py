"""The architecture and the weights of a fixture in separate files, as Keras writes them."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any

import h5py

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_WEIGHTS = "model_weights"


def separate(model: Path, folder: Path) -> tuple[Path, Path]:
    """Write the architecture and the weights of a model; return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    architecture = folder / "architecture.json"
    if model.suffix == ".keras":
        weights = folder / "model.weights.h5"
        with zipfile.ZipFile(model) as archive:
            config = json.loads(archive.read("config.json"))
            weights.write_bytes(archive.read(weights.name))
        config.pop("compile_config", None)
    else:
        weights = folder / "weights.h5"
        with h5py.File(model) as file, h5py.File(weights, "w") as new:
            config = json.loads(_text(file.attrs["model_config"]))
            versions = {key: _text(file.attrs[key]) for key in ("keras_version", "backend")}
            config = {**versions, **config}
            for name, group in file[_WEIGHTS].items():
                file.copy(group, new, name=name)
            new.attrs.update(file[_WEIGHTS].attrs)
    architecture.write_text(json.dumps(config), encoding="utf-8")
    return architecture, weights


def edit(architecture: Path, layers: Mapping[str, Mapping[str, Any]]) -> None:
    """Change the configs of layers in an architecture, by their names."""
    config = json.loads(architecture.read_text(encoding="utf-8"))
    for layer in config["config"]["layers"]:
        layer["config"].update(layers.get(layer["config"]["name"], {}))
    architecture.write_text(json.dumps(config), encoding="utf-8")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()
