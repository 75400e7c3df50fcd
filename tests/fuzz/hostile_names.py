"""
What hostile models name: functions, classes, modules and ops that reach beyond tensors, and names
that look like harmless ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from policytool.model import hazards
from policytool.releases import data, symbols
from policytool.releases import symbols as _functions
from policytool.releases.layer_classes import Category, classes_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random

MARKER: Final = "policytool-marker"
CANARY: Final = "policytool-canary"


@dataclass(frozen=True, kw_only=True, slots=True)
class Paths:
    """What an attack that runs leaves behind: it makes a file, or opens one."""

    folder: Path

    @property
    def marker(self) -> str:
        """A file that is not there."""
        return str(self.folder / MARKER)

    @property
    def canary(self) -> str:
        """A file that no model may open."""
        return str(self.folder / CANARY)

    def any(self, rng: Random) -> str:
        """Return a way to write one of them."""
        path = rng.choice((self.marker, self.canary))
        return rng.choice((path, f"file://{path}", f"../{Path(path).name}", Path(path).name))


_TENSORFLOW: Final = (
    *(
        "io.write_file",
        "io.read_file",
        "io.gfile.rmtree",
        "io.gfile.copy",
        "io.gfile.GFile",
        "io.gfile.makedirs",
        "io.matching_files",
        "py_function",
    ),
    *(
        "experimental.register_filesystem_plugin",
        "mlir.experimental.write_bytecode",
        "load_library",
        "load_op_library",
        "saved_model.load",
        "print",
    ),
    *(
        "data.Dataset.list_files",
        "data.experimental.save",
        "summary.create_file_writer",
        "train.load_checkpoint",
        "train.write_graph",
        "sysconfig.get_lib",
    ),
    *(
        "keras.models.load_model",
        "keras.models.model_from_json",
        "keras.utils.get_file",
        "keras.layers.deserialize",
        "compat.v1.py_func",
        "map_fn",
        "function",
    ),
    *(
        "raw_ops.ReadFile",
        "raw_ops.WriteFile",
        "raw_ops.DatasetFromGraph",
        "raw_ops.SaveV2",
        "raw_ops.PyFunc",
        "raw_ops.XlaCallModule",
        "raw_ops.RestoreV2",
    ),
    *(
        "compat.v1.saved_model.load",
        "compat.v2.io.read_file",
        "compat.v1.gfile.Open",
        "autograph.to_code",
        "distribute.Server",
        "Module.__init__",
        "Variable",
    ),
    *(
        "config.experimental.set_memory_growth",
        "debugging.experimental.enable_dump_debug_info",
        "lite.Interpreter",
        "profiler.experimental.start",
    ),
)
_PYTHON: Final = (
    *(
        "system",
        "os.system",
        "eval",
        "exec",
        "__import__",
        "open",
        "builtins.eval",
        "subprocess.Popen",
        "posix.system",
        "lambda",
        "__class__.__base__",
    ),
)
_ALIKE: Final = (
    *(
        "Dеnse",
        "Dense\u200b",
        "Ｄense",
        "dense ",
        " Dense",
        "Dense\0",
        "rеlu",
        "relu ",
        "reIu",
        "math.аbs",
        "math.abs ",
        "math..abs",
        "Dense.__init__",
    ),
    *("keras.layers.Dense"),
)
_REGISTERED: Final = (
    *(
        "keras.layers>Dense",
        "Custom>Evil",
        "mypackage>Scale",
        "os>system",
        ">",
        "Dense>",
        ">Dense",
        "tf>io.write_file",
        "TensorFlow>Relu",
    ),
    *("Addons>GELU"),
)
_EMPTY: Final = ("",)

MODULES: Final = (
    *(
        "os",
        "posix",
        "subprocess",
        "shutil",
        "builtins",
        "importlib",
        "pickle",
        "webbrowser",
        "mypackage.layers",
        "dill",
        "numpy",
        "torch.hub",
        "",
    ),
    *(
        "__main__",
        "tensorflow",
        "tensorflow.python.ops.io_ops",
        "tensorflow.python.framework.load_library",
        "tensorflow.io",
    ),
    *(
        "tensorflow.python.keras.layers.core",
        "keras.utils",
        "keras.saving",
        "keras.src.utils.file_utils",
        "keras.src.saving.saving_lib",
        "keras.config",
    ),
    *(
        "kеras.layers",
        "keras.layers ",
        "keras..layers",
        "keras_hub.layers",
        "keras_cv",
        "policytool",
        "tests.fuzz",
        "keras.datasets.mnist",
    ),
    *("keras.src.utils.python_utils", "keras.export", "keras.tree", "../keras"),
)


@cache
def functions() -> tuple[str, ...]:
    """
    Return names of functions that are on no list: TensorFlow's, Keras', Python's, look-alikes.
    """
    refused: list[str] = data.read("hazards")["refused"]
    left_out = [
        name for names in data.read("pure_functions")["left_out"].values() for name in names
    ]
    actual = (
        *_TENSORFLOW,
        *refused,
        *(name.rpartition(".")[2] for name in refused),
        *left_out,
        *_PYTHON,
        *_ALIKE,
        *_REGISTERED,
    )
    return tuple(
        dict.fromkeys(
            name
            for name in actual
            if not (_functions.is_pure_function(name) or symbols.is_pure_name(name))
        )
    )


@cache
def classes() -> tuple[str, ...]:
    """Return names of classes that are on no list, and need no special config to be harmful."""
    left_out = list(data.read("pure_classes")["left_out"])
    actual = (*left_out, *functions(), *_EMPTY)
    special = {*classes_of(Category.OP_LAYER), "KerasLayer", "TypeSpec", "__typespec__", "function"}
    return tuple(
        dict.fromkeys(
            name
            for name in actual
            if not (name in special or symbols.is_pure_class(name) or symbols.is_own(name))
        )
    )


@cache
def methods() -> tuple[tuple[str, str], ...]:
    """Return classes with methods that no release wraps."""
    owners = (
        "io",
        "io.gfile",
        "keras.models.model_from_json",
        "RaggedTensor",
        "Module",
        "data.Dataset",
        "train.Checkpoint",
        "Raggedтensor",
        "",
        "os",
    )
    names = (
        "write_file",
        "rmtree",
        "__call__",
        "__reduce__",
        "from_generator",
        "restore",
        "from_tensor ",
        "read",
        "",
        "__class__",
        "load",
    )
    return tuple(
        (owner, name)
        for owner in owners
        for name in names
        if not _functions.is_class_method(owner, name)
    )


@cache
def ops() -> tuple[str, ...]:
    """
    Return the ops that lead out of a graph wherever they stand, and names of ops that are on no
    list.
    """
    known: Mapping[str, Any] = data.read("hazards")
    actual = (
        *known["ops"],
        *known["readers"],
        *known["programs"],
        "XlaCallModule",
        "RemoteCall",
        "ImmutableConst",
        "NoSuchOp",
        "WrіteFile",
        "AddV2 ",
        "MapDataset",
    )
    return tuple(
        name for name in actual if not (hazards.is_placed_op(name) or hazards.is_pure_op(name))
    )


def pure_functions() -> tuple[str, ...]:
    """Return the functions that are on the list."""
    return tuple(sorted(_functions._pure()))  # noqa: SLF001


def model_in_text(paths: Paths) -> str:
    """Return JSON text of a model with byte code, for whoever makes a model of it."""
    return json.dumps(
        {
            "class_name": "Sequential",
            "config": {
                "layers": [
                    {
                        "class_name": "Lambda",
                        "config": {"function": ["4wEAAAA=", None, [paths.marker]]},
                    }
                ]
            },
        }
    )
