"""
Which modules, functions and graph ops a model has no reason to name, because they reach files, the
network or Python itself.

``data/hazards.json`` is what the libraries said themselves (``fixtures/hazards.py`` asks them): the
functions that Keras refuses to look up, the modules of Python's standard library, and the ops of
TensorFlow that take a file, a directory or an address, or call Python. What is typed here are the
exceptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

from policytool.releases import data
from policytool.releases.symbols import ops

_KERAS: Final = frozenset({"keras", "tf_keras"})
_TENSORFLOW: Final = "tensorflow"
_KERAS_IN_TENSORFLOW: Final = ("tensorflow.python.keras.", "tensorflow.keras.")

_OTHER_KERAS: Final = "tensorflow.python.keras."
"""
TensorFlow's own copy of Keras, whose classes know no safe mode.

Keras 3.0 to 3.8 look them up where a config names this module, which no release writes for a class.
"""

_NO_MODELLING: Final = frozenset(
    {
        *(
            "saving",
            "file_utils",
            "io_utils",
            "python_utils",
            "module_utils",
            "torch_utils",
            "dataset_utils",
            "model_visualization",
        ),
        *("config", "global_state", "datasets", "visualization", "distribution", "wrappers"),
    }
)
"""
Parts of Keras' own modules whose functions load, fetch, draw, import or unpack something, or set
the process up; no release writes them into a config.

Keras 3.10 looks any function of them up for a Lambda that names it, those among them that a module
of Keras only imported, and Keras 3.15 what its list does not name.
"""

_DRAWING: Final = frozenset(
    {
        "plot_model",
        "model_to_dot",
        "plot_image_gallery",
        "plot_bounding_box_gallery",
        "plot_segmentation_mask_gallery",
    }
)
"""
Functions of Keras that write pictures, by the public modules that they stand in beside harmless
ones.
"""

_OF_PYTHON: Final = frozenset(
    {
        *(
            "eval",
            "exec",
            "compile",
            "open",
            "input",
            "breakpoint",
            "__import__",
            "__build_class__",
        ),
        *("getattr", "setattr", "delattr", "globals", "locals", "vars"),
    }
)
"""
Builtins of Python that run or reach something.

Keras 3 writes ``builtins`` as the module of functions that it finds by name alone, and ``type`` of
it for a class, so the module itself says nothing.
"""

_NO_LIBRARY: Final = frozenset({"builtins", "test", "this"})
"""Of the standard library, what a module of somebody's own is called too, or what runs nothing."""

_RUNNERS: Final = frozenset({"cloudpickle", "dill", "joblib", "pip", "pkg_resources", "setuptools"})
"""Packages outside the standard library that unpickle, install or import what they are told."""

_OF_TENSORFLOW: Final = (
    *(
        "io.",
        "gfile.",
        "python_io.",
        "read_file",
        "write_file",
        "matching_files",
        "py_func",
        "numpy_function",
        "load_",
        "saved_model.",
    ),
    *(
        "data.",
        "summary.",
        "train.",
        "autograph.",
        "profiler.",
        "debugging.experimental.",
        "sysconfig.",
        "test.",
        "config.",
    ),
    *(
        "print",
        "mlir.",
        "experimental.register_filesystem_plugin",
        "graph_util.",
        "import_graph_def",
        "lite.",
        "tpu.",
        "distribute.",
        "__internal__.",
    ),
)
"""
Beginnings of TensorFlow's public names that touch files, load libraries, call Python, or set up the
process.
"""

_PLAIN: Final = (
    "io.decode_",
    "io.encode_",
    "io.parse_",
    "io.serialize_",
    "io.deserialize_",
    "io.extract_jpeg_shape",
    "io.is_jpeg",
    "io.VarLen",
    "io.FixedLen",
)
"""
Of those, what only turns bytes in memory into tensors, as models do that take images or records.
"""

_INTERNAL: Final = (
    *(
        "ops.io_ops.",
        "ops.gen_io_ops.",
        "ops.script_ops.",
        "ops.gen_script_ops.",
        "framework.load_library.",
        "lib.io.",
        "saved_model.",
        "platform.",
    ),
    *(
        "data.",
        "training.",
        "summary.",
        "autograph.",
        "eager.",
        "util.",
        "tools.",
        "client.",
        "debug.",
        "profiler.",
    ),
)
"""The same by the modules below ``tensorflow.python``."""

_RAW: Final = "raw_ops."
_CACHES: Final = frozenset({"CacheDataset", "CacheDatasetV2"})
"""Ops that take a file name, which is empty in nearly every graph that has them."""

PRINTING: Final = "PrintV2"
"""``tf.print``, which prints to the terminal, or to a file if its ``output_stream`` says so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HarmfulOp:
    """An op of a graph that leads out of it."""

    name: str
    what: str
    """What it does, as a part of a sentence."""


def is_harmful(module: str, name: str) -> bool:
    """
    Return whether a config that names this of a module reaches files, the network or Python itself.
    """
    root = module.partition(".")[0]
    if root == "builtins":
        return name in _OF_PYTHON
    if root in _KERAS or module.startswith(_KERAS_IN_TENSORFLOW):
        if module.startswith(_OTHER_KERAS) and not name[:1].islower():
            return True
        plain = name.rpartition(".")[2]
        return plain in _refused_functions() | _DRAWING or (
            plain[:1].islower() and not _NO_MODELLING.isdisjoint(f"{module}.{name}".split(".")[:-1])
        )
    if root == _TENSORFLOW:
        inner = module.removeprefix("tensorflow").removeprefix(".python").removeprefix(".")
        return f"{inner}.{name}".startswith(_INTERNAL) or in_tensorflow(
            f"{inner}.{name}".removeprefix(".")
        )
    return root in _RUNNERS or (root in _standard() and root not in _NO_LIBRARY)


def in_tensorflow(name: str) -> bool:
    """Return whether a public name of TensorFlow's, such as ``io.read_file``, is one of those."""
    plain = name.removeprefix("compat.").removeprefix("v1.").removeprefix("v2.")
    if plain.startswith("keras."):
        module, _, function = plain.rpartition(".")
        return is_harmful(module, function)
    if plain.startswith(_RAW):
        return op(plain.removeprefix(_RAW)) is not None
    return plain.startswith(_OF_TENSORFLOW) and not plain.startswith(_PLAIN)


def is_foreign(module: str) -> bool:
    """
    Return whether a module is neither Keras' nor what Keras writes for functions that it knows by
    name.
    """
    return (
        module != "builtins"
        and module.partition(".")[0] not in _KERAS
        and not f"{module}.".startswith(_KERAS_IN_TENSORFLOW)
    )


def is_own(registered: str) -> bool:
    """
    Return whether a name that stands for a registered class is Keras 2's own, which it has of
    optimizers: ``Custom>Adam``.
    """
    return registered in data.read("hazards")["registered"]


def op(name: str) -> HarmfulOp | None:
    """
    Return what an op does to files, the network or Python wherever it stands in a graph; None for
    all others.
    """
    if name in data.read("hazards")["readers"]:
        return HarmfulOp(name=name, what="reads files whose names the graph computes")
    if held := data.read("hazards")["programs"].get(name):
        return HarmfulOp(name=name, what=f"runs the code in its {' and '.join(held)}")
    arguments = data.read("hazards")["ops"].get(name)
    if arguments is None or name in _CACHES or (ops.is_placed_op(name) and name != PRINTING):
        return None
    if not arguments:
        return HarmfulOp(
            name=name, what="calls a Python function in the process that runs the graph"
        )
    if name == PRINTING:
        return HarmfulOp(name=name, what="prints to its output_stream, which may be a file")
    return HarmfulOp(name=name, what=f"opens the path given by its {' and '.join(arguments)}")


@cache
def _refused_functions() -> frozenset[str]:
    """
    Return the names of Keras' functions that it refuses to look up, wherever in Keras they are
    found.
    """
    return frozenset(name.rpartition(".")[2] for name in data.read("hazards")["refused"])


@cache
def _standard() -> frozenset[str]:
    return frozenset(data.read("hazards")["standard"])
