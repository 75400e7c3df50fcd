"""
The set of layers as Python for the code that trains the model: a ``DTypePolicyMap`` of Keras 3, or
the global policy of Keras 2; or the filters with which Keras 3.13 and later quantize it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from policytool.releases.layer_classes import layer_facts
from policytool.reports.reporter import Reporter
from policytool.reports.tuning._verdict import headline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from policytool.numerics.tuning.results import Tuning
    from policytool.reports.layout import View
    from policytool.reports.tuning._verdict import Tunings


_GRAPH: Final = "graph"
_CHAIN: Final = "chain"
"""Kinds of networks in the facts of layer classes."""


def _render(tunings: Tunings, view: View) -> str:
    """Return a Python file that sets the policies; only a comment if no set was found."""
    tuning = tunings.tuning
    if tuning is None:
        return ""
    comment = f"# {view.printable(tuning.reference.path)}: {view.printable(headline(tuning))}"
    code = code_of(tuning) if tuning.passed else None
    return "".join(f"{text}\n" for text in (comment, code) if text is not None)


def code_of(tuning: Tuning) -> str | None:
    """
    Return code that sets the policies of the best set before the model is created; None if no set
    was found.
    """
    if tuning.best is None:
        return None
    policy = _literal(tuning.policy)
    classes = {layer.path: layer.class_name for layer in tuning.connected_layers}
    if tuning.is_quantization:
        return "\n".join(_quantization(tuning.best.kept, policy, classes))
    float32 = (*tuning.best.kept, *tuning.fixed)
    if tuning.reference.library.startswith("tf_keras"):
        paths = [path.partition("/")[2] for path in float32]
        lines = ["from tensorflow import keras", ""]
        lines += [f"keras.mixed_precision.set_global_policy({policy})"]
        lines += [f'# create the layer {_literal(path)} with dtype="float32"' for path in paths]
        return "\n".join(lines)
    lines = ["import keras", "", f"policies = keras.dtype_policies.DTypePolicyMap({policy})"]
    lines += [
        f'policies[{_literal(_pattern(path, classes))}] = keras.DTypePolicy("float32")'
        for path in float32
    ]
    return "\n".join([*lines, "keras.config.set_dtype_policy(policies)"])


def _quantization(
    kept: Sequence[str], mode: str, classes: Mapping[str, str | None]
) -> Iterator[str]:
    """
    Yield the lines that quantize a model except the layers ``kept``. Patterns as filters would only
    see the names of layers, which several layers can have.
    """
    if not kept:
        yield f"model.quantize({mode})"
        return
    yield from ("import re", "", "unquantized = [")
    yield from (f"    {_literal(_pattern(path, classes))}," for path in kept)
    yield from ("]", "model.quantize(", f"    {mode},")
    # some layers, such as inputs, have no path
    yield '    filters=lambda layer: not re.search("|".join(unquantized), layer.path or ""),'
    yield ")"


def _pattern(path: str, classes: Mapping[str, str | None]) -> str:
    """
    Return the pattern of a layer for a policy map, which Keras 3 compares with the path of the
    layer when it is created.

    The path of a layer does not contain a functional model, because the layer is created before it.
    It contains a Sequential, and the models around it only if it is built with them. Patterns are
    anchored, because Keras 3.6 and earlier search them anywhere in the path.
    """
    names = path.split("/")
    networks = [
        layer_facts(classes[outer]).network if (outer := "/".join(names[:end])) in classes else None
        for end in range(1, len(names))
    ]
    graphs = [place for place, network in enumerate(networks) if network == _GRAPH]
    start = max(graphs, default=-1) + 1 if names[0] in classes else 1
    chain = max(
        (place for place, network in enumerate(networks) if network == _CHAIN), default=start
    )
    optional, required = names[start:chain], names[max(start, chain) :]
    before = f"(?:{re.escape('/'.join(optional))}/)?" if optional else ""
    return f"^{before}{re.escape('/'.join(required))}$"


REPORTER: Final = Reporter(name="keras-map", render=_render)


def _literal(text: str) -> str:
    """Return text as Python writes it, in ASCII."""
    return json.dumps(text) if text.isascii() else ascii(text)
