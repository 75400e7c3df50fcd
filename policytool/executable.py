"""
What of a model file runs code of the file's own when a library loads the model, or calls it.

A Lambda holds Python's byte code. Ops of TensorFlow that Keras 2 wrapped as layers are named in the config and looked up when it is read, those that touch
files among them. A SavedModel's graph may hold ops that read and write files, or call Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.formats.savedmodel import GRAPH

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.jsontext import Json
    from policytool.reading import Analysis

_WRAPPED: Final = frozenset({"TFOpLambda", "ClassMethod", "InstanceMethod", "InstanceProperty", "SlicingOpLambda"})
_HARMFUL_MODULES: Final = ("io.", "py_func", "numpy_function", "raw_ops.", "data.", "autograph.", "load_", "saved_model.", "summary.", "train.")
"""Parts of TensorFlow that a config has no reason to name: they touch files, load libraries, or reach everything else."""

_HARMFUL_OPS: Final = ("PyFunc", "PyFuncStateless", "EagerPyFunc", "ReadFile", "WriteFile", "MatchingFiles", "ShellExecute")
_OP_FIELD: Final = 0x12
"""The tag of ``NodeDef.op`` (field 2, text), before its length and its text."""


def told(analysis: Analysis, path: Path) -> Iterator[str]:
    """Yield, for each thing that would run, which layer or op it is and what it does, as a part of a sentence."""
    for index, site in enumerate(analysis.placed.sites):
        layer = analysis.model.layers[index]
        if site.class_name == "Lambda":
            yield f"{layer.path} is a Lambda, whose byte code the loader runs"
        elif site.class_name in _WRAPPED and (named := _function(site.config)).startswith(_HARMFUL_MODULES):
            yield f"{layer.path} calls TensorFlow's {named}"
    for part in analysis.document.parts.values():
        if _holds_code(part):
            yield "a config holds Python's byte code (__lambda__)"
            break
    if analysis.document.format == "savedmodel":
        data = (path / GRAPH).read_bytes()
        yield from (f"its graph has the op {name}" for name in _HARMFUL_OPS if bytes([_OP_FIELD, len(name)]) + name.encode() in data)


def _function(config: object) -> str:
    named = config.get("function") or config.get("class_module") if isinstance(config, dict) else None
    return named.removeprefix("compat.").removeprefix("v1.").removeprefix("v2.") if isinstance(named, str) else ""


def _holds_code(value: Json) -> bool:
    pending = [value]
    while pending:
        found = pending.pop()
        if isinstance(found, dict):
            if found.get("class_name") == "__lambda__":
                return True
            pending += found.values()
        elif isinstance(found, list):
            pending += found
    return False
