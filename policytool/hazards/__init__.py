"""
What of a model file runs code, names code, opens other files, or has no end when a library loads the model.

It is read from the configs as data: of the model, of its training, of every object of a SavedModel. What is known is listed; it is no proof that a file
does no harm.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from policytool import wiring
from policytool.errors import short
from policytool.hazards._table import PRINTING, HarmfulOp, in_tensorflow, is_foreign, is_harmful, is_own, op
from policytool.jsontext import pointer
from policytool.model import Address

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from policytool.document import Document
    from policytool.jsontext import Json
    from policytool.tree import Site


class Harm(StrEnum):
    """What something in a file does to whoever loads it."""

    CODE = "code"
    """It is code, which the loader runs."""

    NAMED = "named"
    """It names code that reaches files, the network or Python itself, which a loader looks up."""

    CUSTOM = "custom"
    """It names code of someone's own, which has to be at hand."""

    FILE = "file"
    """It makes the loader open another file, or fetch one."""

    ENDLESS = "endless"
    """It keeps the loader busy without end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hazard:
    """One such thing."""

    harm: Harm
    name: str
    """What tells it apart within its layer: a class, a function with its module, a config key."""

    what: str
    """What it does, as a predicate."""

    address: Address
    site: int | None
    """The layer that it stands in; None where it is in none, as in a training configuration."""


_WRAPPED: Final = frozenset({"TFOpLambda", "ClassMethod", "InstanceMethod", "InstanceProperty", "SlicingOpLambda"})
"""Layers of Keras 2 around a function of TensorFlow, which is looked up by its name."""

_LOOKUPS: Final = ("Lookup", "TextVectorization")
LAMBDA: Final = "Lambda"
_PAYLOAD: Final = "__lambda__"
_TYPE: Final = "_type"
_BYTE_CODE: Final = "byte code"
_OPENING: Final = {
    "TFSMLayer": ("filepath", "loads the SavedModel at {}, whose graph runs"),
    "TorchModuleWrapper": ("module", "holds a pickled PyTorch module, which its loader unpickles"),
    "KerasLayer": ("handle", "loads TensorFlow Hub's {}, whose graph runs"),
}
"""Class to the config key that names what is loaded, and what it does."""

_LEADS_OUT: Final = re.compile(r"(^|[/\\])\.\.([/\\]|$) | ^[/\\] | ^[A-Za-z]:[/\\] | :// | \x00", re.VERBOSE)

OUTSIDE: Final = ("external-link", "user-defined-link", "external-storage", "virtual-dataset", "escaping-link", "escaping-shard")
"""What readers observe of values that lie outside the file, and did not follow."""

_Found = tuple[Harm, str, str]


def of(document: Document, places: Mapping[Address, tuple[int, ...]]) -> tuple[Hazard, ...]:
    """
    Return what is found in the configs, each once per layer, in the order of the file.

    :param places: where the layers' policies stand or would stand, as :func:`policytool.tree.places` tells it.
    """
    owners = {(at.part, at.pointer.removesuffix("/dtype").removesuffix("/config")): sites[0] for at, sites in places.items()}
    found: dict[tuple[Harm, str, int | None], Hazard] = {}
    for part, value in document.parts.items():
        for inner, steps, site in _dicts(value, part, owners):
            for harm, name, what in _judged(inner):
                found.setdefault((harm, name, site), Hazard(harm=harm, name=name, what=what, address=Address(part=part, pointer=steps), site=site))
    return tuple(found.values())


def leading_out(site: Site) -> str | None:
    """Return a layer's name that is a path out of a directory; None where it has no such name."""
    names = (site.given_name, site.name, (site.config or {}).get("name"))  # Keras builds by the one in the config, whatever stands beside it
    return next((name for name in names if isinstance(name, str) and _LEADS_OUT.search(name)), None)


def _dicts(value: Json, part: str, owners: Mapping[tuple[str, str], int]) -> Iterator[tuple[dict[str, Json], str, int | None]]:
    """Yield every object in a value with its pointer and the layer it stands in."""
    pending: list[tuple[Json, str, int | None]] = [(value, "", None)]
    while pending:
        found, steps, site = pending.pop()
        if isinstance(found, dict):
            site = owners.get((part, steps), site)
            yield found, steps, site
        children = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
        pending += reversed([(child, steps + pointer(key), site) for key, child in children if isinstance(child, dict | list)])


def _judged(value: dict[str, Json]) -> Iterator[_Found]:
    """Yield what one object of a config does."""
    for key, kind in value.items():
        if kind == "lambda" and key.endswith(_TYPE) and value.get(key.removesuffix(_TYPE)):
            yield Harm.CODE, _BYTE_CODE, f"holds Python's byte code ({key.removesuffix(_TYPE)}), which the loader runs"
    class_name, config = value.get("class_name"), value.get("config")
    if not isinstance(class_name, str):
        return
    if class_name == _PAYLOAD:
        yield Harm.CODE, _BYTE_CODE, f"holds Python's byte code ({_PAYLOAD}), which the loader runs"
    elif class_name == LAMBDA and isinstance(config, dict):
        yield from _of_lambda(config)
    elif class_name in _WRAPPED and isinstance(config, dict):
        yield from _of_wrapped(config)
    elif isinstance(config, dict):
        yield from _opened(class_name, config)
    if isinstance(config, dict) and "output_layers" in config and (stuck := wiring.stuck(config)):
        yield Harm.ENDLESS, "graph", f"has {wiring.told(stuck)}"
    yield from _named(value, class_name, config)


def _of_lambda(config: dict[str, Json]) -> Iterator[_Found]:
    """Yield what a Lambda runs: byte code, unless it names functions, which Keras 2 takes from any module that is loaded."""
    function = config.get("function")
    for key in ("function", "output_shape", "mask"):
        module, name = config.get("module" if key == "function" else f"{key}_module"), config.get(key)
        if isinstance(module, str) and isinstance(name, str) and is_harmful(module, name):
            yield Harm.NAMED, f"{module}.{name}", f"calls {short(f'{module}.{name}')}, which is no part of a model"
    if isinstance(function, str) and config.get("function_type") != "lambda":
        yield Harm.CUSTOM, f"{function} of a {LAMBDA}", f"is a Lambda of the Python function {short(function)}"
    elif isinstance(function, list) or not isinstance(function, dict):
        yield Harm.CODE, _BYTE_CODE, "is a Lambda, whose byte code the loader runs"


def _of_wrapped(config: dict[str, Json]) -> Iterator[_Found]:
    named = config.get("function") or config.get("class_module")
    if isinstance(named, str) and in_tensorflow(named):
        yield Harm.NAMED, f"tensorflow.{named}", f"calls TensorFlow's {short(named)}, which reaches beyond the model"


def _opened(class_name: str, config: dict[str, Json]) -> Iterator[_Found]:
    """Yield what other file a layer of Keras opens when it is built."""
    if class_name in _OPENING:
        key, what = _OPENING[class_name]
        told = config.get(key)
        if told:
            yield Harm.FILE, key, what.format(short(told) if isinstance(told, str) else "another file")
    elif class_name.endswith(_LOOKUPS) and isinstance(config.get("vocabulary"), str) and config["vocabulary"]:
        yield Harm.FILE, "vocabulary", f"reads its vocabulary from {short(str(config['vocabulary']))}, wherever the model is loaded"


def _named(value: dict[str, Json], class_name: str, config: Json) -> Iterator[_Found]:
    """Yield what code an object asks for by its module, or by a name that it was registered under."""
    module, registered = value.get("module") or None, value.get("registered_name")
    is_function = class_name == "function" and isinstance(config, str)
    name = str(config) if is_function else class_name
    if isinstance(module, str) and is_harmful(module, name):
        yield Harm.NAMED, f"{module}.{name}", f"names {short(f'{module}.{name}')}, which is no part of a model"
    elif isinstance(module, str) and not class_name.startswith("__") and is_foreign(module):
        own = registered if isinstance(registered, str) and not is_function else name
        yield Harm.CUSTOM, own, f"needs {name} of {module}"
    elif ">" in name or (isinstance(registered, str) and ">" in registered):
        own = registered if isinstance(registered, str) and ">" in registered else name
        if not is_own(own):
            yield Harm.CUSTOM, own, f"needs {own}, which someone registered"


__all__ = ["LAMBDA", "OUTSIDE", "PRINTING", "Harm", "HarmfulOp", "Hazard", "leading_out", "of", "op"]
