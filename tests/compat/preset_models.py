"""
Saves small presets, loads them with ``policytool.load``, and compares the results with those of
``from_preset``: ``preset_models.py ROOT PACKAGES FOLDER``. PACKAGES is the directory with the
packages that policytool needs.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT, PACKAGES, FOLDER = sys.argv[1:]
sys.path[:0] = [ROOT, str(Path(ROOT) / "fixtures")]
sys.path.append(PACKAGES)

import keras  # noqa: E402  # after the paths
import keras_hub  # noqa: E402
import numpy as np  # noqa: E402

import policytool  # noqa: E402

presets = importlib.import_module("writer.presets")

PRESETS = (("Llama", "bfloat16"), ("Llama", "int8"), ("CLIP", "mixed_bfloat16"))


def differences(preset: Path) -> list[str]:
    """Return the variables in which the two loaded backbones differ."""
    config = json.loads((preset / "config.json").read_text(encoding="utf-8"))
    models: list[Any] = [
        policytool.load(preset),
        keras_hub.models.Backbone.from_preset(str(preset), dtype=config["config"]["dtype"]),
    ]
    own, other = (
        [
            (variable.path, variable.dtype, keras.ops.convert_to_numpy(variable).astype("float32"))
            for variable in model.variables
        ]
        for model in models
    )
    assert len(own) == len(other) > 0
    policies = [
        [presets.own_policy(layer).name for layer in model._flatten_layers()]  # noqa: SLF001
        for model in models
    ]
    assert policies[0] == policies[1], preset
    return [
        first[0]
        for first, second in zip(own, other, strict=True)
        if first[:2] != second[:2] or not np.array_equal(first[2], second[2])
    ]


def main() -> None:
    """Write the presets, and print the differences by preset."""
    found = {}
    for family, stored in PRESETS:
        keras.utils.clear_session()
        preset = Path(FOLDER) / f"{family}-{stored}"
        # in gigabytes; from 2 kilobytes on, the weights are split
        presets.build(family, stored).save_to_preset(str(preset), max_shard_size=2e-6)
        found[preset.name] = differences(preset)
    sys.stdout.write(json.dumps(found))


main()
