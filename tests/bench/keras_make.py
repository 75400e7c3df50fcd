"""
Write the models that are measured, with random weights: ``python keras_make.py DIR``.

Runs under the interpreter that has Keras.

EfficientNetV2-L is written by Keras and, as a SavedModel, by tf_keras; ``thin`` is a network of the
same depth and an eighth of the width: as many layers, hardly any weights. ``mixed`` is an
EfficientNetB4 in mixed_float16, as a SavedModel of tf_keras.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

applications: Any = import_module(
    "keras.src.applications.efficientnet_v2"
)  # the public module has no width
BLOCKS: Final = applications.DEFAULT_BLOCKS_ARGS["efficientnetv2-l"]
MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "efficientnetv2l": lambda: applications.EfficientNetV2L(weights=None),
    "thin": lambda: applications.EfficientNetV2(
        0.125, 1.0, 480, blocks_args=BLOCKS, weights=None, name="thin"
    ),
}

saved_model = Path(sys.argv[1], "efficientnetv2l.savedmodel")
if not saved_model.exists():  # Keras 3 writes none
    draft = saved_model.with_name(f"draft-{saved_model.name}")
    import_module("tf_keras").applications.EfficientNetV2L(weights=None).save(
        draft, save_format="tf"
    )
    draft.rename(saved_model)
mixed = Path(sys.argv[1], "mixed.savedmodel")
if not mixed.exists():
    keras2: Any = import_module("tf_keras")
    keras2.mixed_precision.set_global_policy("mixed_float16")
    draft = mixed.with_name(f"draft-{mixed.name}")
    keras2.applications.EfficientNetB4(weights=None).save(draft, save_format="tf")
    draft.rename(mixed)
for name, make in MAKERS.items():
    missing = [
        path
        for suffix in (".h5", ".keras")
        if not (path := Path(sys.argv[1], name + suffix)).exists()
    ]
    if missing:
        model = make()
        for path in missing:
            draft = path.with_name(f"draft-{path.name}")
            model.save(draft)
            draft.rename(path)
