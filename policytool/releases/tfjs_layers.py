"""
What TensorFlow.js loads: ``data/tfjs_layers.json``, which ``fixtures/tfjs_layers.py`` has from the
package itself.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import behaviour, data

if TYPE_CHECKING:
    from collections.abc import Mapping

    from policytool.releases.behaviour import Facts

_UNDERSCORE: Final = re.compile(r"(?<=.)_+(\w|$)")

_FAILS: Final = "fails"

ULP: Final = 64
"""The maximum difference of results, in ulp of the largest: TensorFlow.js has its own kernels."""


def is_known(name: str) -> bool:
    """
    Return whether TensorFlow.js has a class or function of this name. It converts the name to camel
    case before it looks it up (``toCamelCase`` in utils/generic_utils.ts).
    """
    return _UNDERSCORE.sub(lambda match: match[1].upper(), name) in _names()


def objection(class_name: str, config: Mapping[str, object], *, masked: bool) -> str | None:
    """
    Return the reason why a layer of a known class computes other results in TensorFlow.js than in
    Keras; None if no measurement shows a difference.

    :param config: the layer's config in the format of Keras 2
    :param masked: whether the model has masks
    """
    facts = _table()["layers"].get(class_name)
    if facts is None:
        return None
    for key, number in facts["only"].items():
        if config.get(key, number) != number:
            return f"TensorFlow.js supports only {key} {number} in {class_name}"
    layer_arguments = behaviour.arguments(config, facts["default"])
    default = facts["cases"].get(class_name, {})
    for name, case in facts["cases"].items():
        if behaviour.agrees(case, ULP):
            continue
        if name == class_name or (_FAILS in default and case.get(_FAILS) == default[_FAILS]):
            applies = not _has_working_arguments(facts["cases"], layer_arguments)
        elif "mask" in name and not masked:
            applies = False
        elif name == f"{class_name}[mask]":
            applies = True
        else:  # the same words may stand for other numbers, which "only" tells
            applies = _has_arguments(case, layer_arguments) and not any(
                behaviour.agrees(other, ULP) and other.get("arguments") == case["arguments"]
                for other in facts["cases"].values()
            )
        if applies:
            return _difference(class_name, case)
    return None


def _has_working_arguments(cases: Facts, layer_arguments: Facts) -> bool:
    """
    Return whether a layer has the arguments with which a class works whose default fails: GRU with
    ``reset_after=False``.
    """
    return any(
        behaviour.agrees(case, ULP) and _has_arguments(case, layer_arguments)
        for case in cases.values()
    )


def _has_arguments(case: Facts, layer_arguments: Facts) -> bool:
    return "arguments" in case and case["arguments"].items() <= layer_arguments.items()


def _difference(class_name: str, case: Facts) -> str:
    if _FAILS in case:
        return f"TensorFlow.js fails with this {class_name}: {case[_FAILS]}"
    return f"TensorFlow.js computes something else with this {class_name} (measured)"


@cache
def _names() -> frozenset[str]:
    return frozenset(_table()["names"])


def _table() -> dict[str, Any]:
    return data.read("tfjs_layers")
