"""
Print what TensorFlow's op registry says of every op: ``op_registry.py``, under an interpreter that
has TensorFlow.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tensorflow.core.framework import op_def_pb2, types_pb2
from tensorflow.python.client import pywrap_tf_session


def arguments(definition: Any) -> list[tuple[str, str]]:
    """
    Return the name and the kind of every input and attribute: ``text`` if TensorFlow takes any
    string there, ``call`` if it takes functions.
    """
    actual = [
        (argument.name, "text" if argument.type == types_pb2.DT_STRING else "tensor")
        for argument in definition.input_arg
    ]
    for item in definition.attr:
        plain = item.type.removeprefix("list(").removesuffix(")")
        is_text = plain == "string" and not item.allowed_values.list.s
        actual.append((item.name, "text" if is_text else "call" if plain == "func" else plain))
    return actual


def main() -> None:
    """Print a JSON object: op to its arguments, each as a list of name and kind."""
    ops = op_def_pb2.OpList()
    ops.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    json.dump({definition.name: arguments(definition) for definition in ops.op}, sys.stdout)


if __name__ == "__main__":
    main()
