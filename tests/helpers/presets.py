"""KerasHub presets for tests: from the record of real ones, and of any size."""

from __future__ import annotations

import json
from functools import cache
from gzip import decompress
from typing import TYPE_CHECKING, Any, Final

import h5py

from tests.helpers.large_models import allocate
from tests.helpers.paths import FIXTURES
from tests.helpers.small_models import instance3

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Groups = dict[str, list[Any]]
"""By group: the name of the layer, then the shape and the dtype of each variable."""

METADATA: Final = {"keras_version": "3.15.1", "keras_hub_version": "0.32.0"}
INDEX: Final = "model.weights.json"
WEIGHTS: Final = "model.weights.h5"


@cache
def record() -> Any:
    """Return what KerasHub stored in presets and loaded from them, by family and policy."""
    return json.loads(decompress((FIXTURES / "presets.json.gz").read_bytes()))


def write_preset(folder: Path, config: Mapping[str, Any], groups: Groups) -> Path:
    """Write a preset with a weights file, and return its directory."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=4), encoding="utf-8")
    (folder / "metadata.json").write_text(json.dumps(METADATA), encoding="utf-8")
    write_weights(folder / WEIGHTS, groups)
    return folder


def add_task(folder: Path, groups: Groups | None, task: Any = None) -> Path:
    """Add a task with layers to a preset, and return its directory."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    task = task or {
        "module": "keras_hub.src.models.llama.llama_causal_lm",
        "class_name": "LlamaCausalLM",
        "config": {"preprocessor": None, "name": "llama_causal_lm"},
        "registered_name": "keras_hub>LlamaCausalLM",
    }
    task = {**task, "config": {"backbone": config, **task["config"]}}
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
    if groups is not None:
        write_weights(folder / "task.weights.h5", {"": [task["config"]["name"]], **groups})
    return folder


def write_weights(path: Path, groups: Groups) -> None:
    """Write a weights file like Keras 3, without values."""
    with h5py.File(path, "w") as file:
        for group, (name, *variables) in groups.items():
            place = file.create_group(f"{group}/vars" if group else "vars")
            place.attrs["name"] = name
            for number, (*shape, dtype) in enumerate(variables):
                is_bfloat16 = dtype == "bfloat16"
                allocate(place, str(number), tuple(shape), "V2" if is_bfloat16 else dtype)
                if is_bfloat16:
                    place[str(number)].attrs["dtype"] = dtype


def write_recorded(folder: Path, family: str, stored: str) -> Path:
    """Write a preset as KerasHub stored it."""
    preset = record()[family][stored]
    return write_preset(folder, preset["config"], preset["groups"])


def backbone(dtype: Any, **config: Any) -> dict[str, Any]:
    """Return the config of a backbone."""
    return {
        "module": "keras_hub.src.models.llama.llama_backbone",
        "class_name": "LlamaBackbone",
        "config": {"name": "llama", "trainable": True, "dtype": dtype, **config},
        "registered_name": "keras_hub>LlamaBackbone",
    }


def policy(name: str) -> dict[str, Any]:
    """Return a policy as Keras 3 stores it."""
    return instance3("DTypePolicy", "keras", name=name)


def decoder_groups(layers: int, width: int, dtype: str = "bfloat16") -> Groups:
    """Return the groups of a Llama decoder."""
    groups: Groups = {"": ["llama"], "layers/embedding": ["token_embedding", [width, width, dtype]]}
    for number in range(layers):
        suffix = f"_{number}" if number else ""
        block = f"layers/llama_transformer_decoder{suffix}"
        attention = f"{block}/_self_attention_layer"
        groups |= {
            block: [f"transformer_layer_{number}"],
            f"{block}/_feedforward_gate_dense": ["feedforward_gate", [width, 4 * width, dtype]],
            f"{block}/_feedforward_output_dense": ["feedforward_output", [4 * width, width, dtype]],
            f"{block}/_feedforward_layernorm": ["feedforward_layernorm", [width, dtype]],
            f"{block}/_self_attention_layernorm": ["self_attention_layernorm", [width, dtype]],
            attention: ["self_attention"],
            f"{attention}/_query_dense": ["query", [width, 8, width // 8, dtype]],
            f"{attention}/_key_dense": ["key", [width, 8, width // 8, dtype]],
            f"{attention}/_value_dense": ["value", [width, 8, width // 8, dtype]],
            f"{attention}/_output_dense": ["attention_output", [8, width // 8, width, dtype]],
        }
    return groups


def split_weights(folder: Path, groups: Groups, shards: int) -> dict[str, str]:
    """Replace the weights of a preset by shards with about equal numbers of groups."""
    (folder / WEIGHTS).unlink()
    stored = [group for group, (_, *variables) in groups.items() if variables]
    each = -(-len(stored) // shards)
    mapped: dict[str, str] = {}
    for number in range(shards):
        name = f"model_{number:05}.weights.h5"
        own = stored[number * each : (number + 1) * each]
        named = own if number else {*own, *(groups.keys() - stored)}
        write_weights(folder / name, {group: groups[group] for group in groups if group in named})
        mapped |= {f"/{group}/vars": name for group in own}
    (folder / INDEX).write_text(
        json.dumps({"metadata": {"total_size": 1.0}, "weight_map": mapped}), encoding="utf-8"
    )
    return mapped
