"""
Write the models that are measured, with random weights: ``python keras_make.py DIR``. Runs under the interpreter that has Keras.

Beside EfficientNetV2-L, ``thin`` is a network of the same depth and an eighth of the width: as many layers, hardly any weights.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

applications: Any = import_module("keras.src.applications.efficientnet_v2")  # the public module has no width
BLOCKS: Final = applications.DEFAULT_BLOCKS_ARGS["efficientnetv2-l"]
MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "efficientnetv2l": lambda: applications.EfficientNetV2L(weights=None),
    "thin": lambda: applications.EfficientNetV2(0.125, 1.0, 480, blocks_args=BLOCKS, weights=None, name="thin"),
}

for name, make in MAKERS.items():
    missing = [path for suffix in (".h5", ".keras") if not (path := Path(sys.argv[1], name + suffix)).exists()]
    if missing:
        model = make()
        for path in missing:
            draft = path.with_name(f"draft-{path.name}")
            model.save(draft)
            draft.rename(path)
