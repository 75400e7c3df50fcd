"""
What loaders make of the config of a built-in class: whether they find the class, which of its keys
they refuse, and which they miss.

``data/layer_arguments.json`` is what they said themselves (``fixtures/layer_arguments.py`` asks
them, and explains it). A loader is asked about a class that is named alone, and about one whose
module stands beside it: what Keras looks up differs.

``data/class_modules.json`` has the modules in which each release finds which class and activation
(``fixtures/class_modules.py`` asks them). A file stores the module beside the name, and TF 2.12 and
later and Keras 3 look the name up there.

``data/training_names.json`` has the losses, metrics and schedules that each release finds by name
in a training configuration.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from policytool.releases import data, keras_objects
from policytool.releases.keras_objects import snake_case
from policytool.releases.layer_classes import registered_class_name
from policytool.releases.releases import KERAS2, LOADERS, family_of, is_since

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


Facts = dict[str, Any]
ANY: Final = "*"
LAYERS: Final = "layers"
ACTIVATIONS: Final = "activations"
_KINDS: Final = {
    "initializer": "initializers",
    "regularizer": "regularizers",
    "constraint": "constraints",
}
"""The kinds of objects in a layer's config, by the last words of their keys."""
_MODULE: Final = "+module"
_LEFT_OUT: Final = frozenset(
    {
        "name",
        "trainable",
        "dtype",
        "layers",
        "input_layers",
        "output_layers",
        "layer",
        "cell",
        "cells",
    }
)
"""Keys that the data omits: names, flags, dtypes, and other layers."""

_OF_EVERY_LAYER: Final = frozenset({"batch_input_shape", "activity_regularizer"})
"""
Keys that every layer accepts: the second is written by Keras 3 for all layers that have one, and
Keras 2 writes it for some classes.
"""

_OF_ALL: Final = frozenset({"autocast", "input_dim", "input_shape"})
"""Arguments of nearly all layers, which few write."""

_OF_KERAS2: Final = frozenset({"batch_size", "dynamic", "implementation", "weights"})
"""Arguments of nearly all layers in Keras 2, which few write."""


class Objection(Struct, frozen=True, kw_only=True):
    """The reason why a release does not accept the config of a class."""

    missing: bool = False
    """Whether the release lacks the class; then the other fields are empty."""

    broken: bool = False
    """
    Whether the release fails on its own configs of the class; then the other fields are empty.
    """

    refused: tuple[str, ...] = ()
    """Keys that it does not take."""

    values: tuple[tuple[str, str], ...] = ()
    """Keys that the release does not accept."""

    lacking: tuple[str, ...] = ()
    """Required keys that the config lacks."""


_NO_OBJECTION: Final = Objection()


def kind_of(key: str) -> str | None:
    """
    Return the kind of an object from its key in a config, such as ``kernel_initializer``; None if
    the key does not contain a kind.
    """
    _, underscore, word = key.rpartition("_")
    return _KINDS.get(word) if underscore else None


def is_known(kind: str, class_name: str) -> bool:
    """Return whether a measured release has the class."""
    return registered_class_name(class_name) in measurements().get(kind, {})


def unknown_keys(kind: str, class_name: str, keys: tuple[str, ...]) -> tuple[str, ...]:
    """
    Return the keys that no measured release writes for the class.
    """
    written = _written_keys(kind, registered_class_name(class_name))
    return tuple(key for key in keys if key not in written)


def accepting_loaders(kind: str, class_name: str, key: str) -> frozenset[str]:
    """
    Return the releases in which a class has an argument that none of them writes, so that it is
    unknown which values they load. A release without the argument refuses the key, unless it takes
    any.
    """
    columns: str = _facts(kind, class_name).get("takes", {}).get(key, "")
    return _columns(columns).union(
        loader
        for loader in LOADERS
        if key in _OF_ALL or (key in _OF_KERAS2 and family_of(loader) == KERAS2)
    )


def valued_keys(kind: str, class_name: str) -> tuple[str, ...]:
    """Return the keys of a class for which a release accepts only some values."""
    return _refused_values(kind, registered_class_name(class_name))


def objection(
    loader: str, kind: str, class_name: str, config: Mapping[str, object], *, module: bool
) -> Objection | None:
    """
    Return the reason why a release does not accept the config of a known class; None if it accepts
    the config.
    """
    return objections((loader,), kind, class_name, config, module=module).get(loader)


def objections(
    loaders: Sequence[str],
    kind: str,
    class_name: str,
    config: Mapping[str, object],
    *,
    module: bool,
) -> Mapping[str, Objection]:
    """
    Return the reasons why releases do not accept the config of a known class, by release. Releases
    that accept the config are left out.
    """
    facts: Facts = measurements()[kind][registered_class_name(class_name)]
    missing, failing = _columns(facts.get("missing", "")), _columns(facts.get("fails", ""))
    refuses: Facts = facts.get("refuses", {})
    refusals = []
    for key in config:
        if key in refuses:
            value = text(config[key])
            columns = _columns(refuses[key].get(ANY, "")), _columns(refuses[key].get(value, ""))
            refusals.append((key, value, *columns))
    for key in unknown_keys(kind, class_name, tuple(config)) if kind != OPTIMIZERS else ():
        accepting = accepting_loaders(kind, class_name, key)
        taking = {*accepting, *(loader + _MODULE for loader in accepting)}
        refusing = _column_positions().keys() - taking - _columns(facts.get("anything", ""))
        refusals.append((key, "", frozenset(refusing), frozenset()))
    required = [
        (key, _columns(columns))
        for key, columns in facts.get("requires", {}).items()
        if key not in config
    ]
    by_loader = {}
    for loader in loaders:
        column = loader + _MODULE if module and loader + _MODULE in _column_positions() else loader
        if column in missing:
            by_loader[loader] = Objection(missing=True)
        elif column in failing:
            by_loader[loader] = Objection(broken=True)
        elif refusals or required:
            refusal = Objection(
                refused=tuple(
                    sorted(
                        key
                        for key, _, refusing_columns, _ in refusals
                        if column in refusing_columns
                    )
                ),
                values=tuple(
                    sorted(
                        (key, value)
                        for key, value, refusing_columns, accepting_columns in refusals
                        if column in accepting_columns and column not in refusing_columns
                    )
                ),
                lacking=tuple(key for key, columns in required if column in columns),
            )
            if refusal != _NO_OBJECTION:
                by_loader[loader] = refusal
    return by_loader


def unreliable_loaders(kind: str, class_name: str, *, module: bool) -> frozenset[str]:
    """
    Return the releases that fail to load the config of a default instance, the only one that they
    write for the class.
    """
    facts: Facts = measurements()[kind][registered_class_name(class_name)]
    failing_columns = _columns(facts.get("may_fail", ""))
    return frozenset(
        loader
        for loader in _column_positions()
        if (loader + _MODULE if module and loader + _MODULE in _column_positions() else loader)
        in failing_columns
    )


def activation_values(activation: str, release: str) -> tuple[float, ...] | None:
    """
    Return the values of a release's activation at -2.5, -1, 1 and 2.5; None if all releases agree,
    or if the values are unknown.

    A release that was not measured has the values of its family, if the measured releases of the
    family agree.
    """
    groups: Facts = measurements()["activations"].get(activation, {}).get("computes", {})
    family_values = []
    for values, ranges in groups.items():
        releases = _columns(ranges)
        if release in releases:
            return tuple(json.loads(values))
        if any(family_of(other_release) == family_of(release) for other_release in releases):
            family_values.append(values)
    is_measured = release in _column_positions()
    return (
        tuple(json.loads(family_values[0])) if len(family_values) == 1 and not is_measured else None
    )


def written_values(kind: str, class_name: str, key: str) -> Mapping[str, frozenset[str]]:
    """
    Return the values of default instances of a class for a key, as JSON, with the releases that
    write them.
    """
    writes: Facts = _facts(kind, class_name).get("writes", {})
    return {value: _columns(releases) for value, releases in writes.get(key, {}).items()}


def default_config(kind: str, class_name: str, release: str) -> dict[str, Any]:
    """
    Return the config that a release writes for a default instance of a class. A release that was
    not measured has the config of the next later release of its family.
    """
    writes: Facts = _facts(kind, class_name).get("writes", {})
    columns = [
        column
        for column in _column_positions()
        if column in LOADERS
        and family_of(column) == family_of(release)
        and is_since(column, release)
    ]
    return {
        key: json.loads(value)
        for column in columns[:1]
        for key, values in writes.items()
        for value, releases in values.items()
        if column in _columns(releases)
    }


def text(value: object) -> str:
    """Return a value in the form of the data: JSON, or a serialized object's class."""
    name = keras_objects.class_of(value)
    return f"@{name}" if name is not None else json.dumps(value, sort_keys=True)


@cache
def measurements() -> Facts:
    """Return the data."""
    return data.read("layer_arguments")


@cache
def _column_positions() -> Mapping[str, int]:
    return {column: index for index, column in enumerate(measurements()["columns"])}


@cache
def _columns(ranges: str) -> frozenset[str]:
    return expand_ranges(ranges, measurements()["columns"])


def expand_ranges(ranges: str, names: Sequence[str]) -> frozenset[str]:
    """Return the names of ranges such as ``tf1.15..tf2.4 keras3.6``."""
    expanded: set[str] = set()
    for part in ranges.split():
        first, _, last = part.partition("..")
        expanded.update(names[names.index(first) : names.index(last or first) + 1])
    return frozenset(expanded)


@cache
def _written_keys(kind: str, name: str) -> frozenset[str]:
    facts: Facts = measurements()[kind][name]
    keys = {*_LEFT_OUT, *facts.get("writes", {}), *facts.get("also", {})}
    return frozenset(keys | _OF_EVERY_LAYER)


@cache
def _refused_values(kind: str, name: str) -> tuple[str, ...]:
    refuses: Facts = measurements().get(kind, {}).get(name, {}).get("refuses", {})
    return tuple(key for key, values in refuses.items() if set(values) != {ANY})


def _facts(kind: str, class_name: str) -> Facts:
    facts: Facts = measurements().get(kind, {}).get(registered_class_name(class_name), {})
    return facts


LOSSES: Final = "losses"
METRICS: Final = "metrics"
SCHEDULES: Final = "schedules"
OPTIMIZERS: Final = "optimizers"

BY_SHAPE: Final = frozenset({"accuracy", "acc", "crossentropy", "ce"})
"""
Metrics that ``compile()`` chooses by the outputs' shape and the loss; no loader looks them up.
"""

METRIC_WRAPPERS: Final = frozenset({"MeanMetricWrapper", "SumOverBatchSizeMetricWrapper"})
"""Metrics of Keras 2 around a function, which their config names."""

_CONTAINERS: Final = ("h5", "keras")


def resolves_name(loader: str, container: str, kind: str, name: str) -> bool:
    """
    Return whether a release finds a loss or a metric by a name.

    :param container: ``h5`` for HDF5 and SavedModels, whose training configuration ``deserialize``
        reads; ``keras`` for archives, whose names are passed to ``compile()``
    """
    return loader in _releases(data.read("training_names")[kind][container].get(name, ""))


def is_known_name(kind: str, name: str, *, is_function: bool, keras3: bool) -> bool:
    """
    Return whether some release finds a loss or a metric by a name, or has a class of this name.

    :param is_function: whether it is the name of a serialized function
    :param keras3: whether Keras 3 wrote it; otherwise a release of Keras 2 must find it
    """
    known = data.read("training_names")[kind]
    if name in known["classes"]:
        return True
    if is_function:
        return name in known["functions"]
    finding = (_releases(known[container].get(name, "")) for container in _CONTAINERS)
    return any(
        keras3 or family_of(release) == KERAS2 for releases in finding for release in releases
    )


def class_with_alias(kind: str, name: str) -> str | None:
    """Return the class to which Keras 3 gives a name in snake case, such as AUC for ``auc``."""
    return next((known for known in _classes(kind) if snake_case(known) == name), None)


def plain_metric_names() -> frozenset[str]:
    """Return the names of metrics in lower case. Names of classes get underscores."""
    return frozenset(snake_case(name) for name in data.read("training_names")[METRICS]["keras"])


def is_class(kind: str, name: str) -> bool:
    """Return whether some release has a class of that name."""
    return name in _classes(kind)


def arguments(loader: str, kind: str, class_name: str) -> frozenset[str] | None:
    """
    Return the arguments of a class of losses, metrics or schedules in a release; None if the
    release does not have the class.
    """
    names = frozenset(
        key
        for key, ranges in _classes(kind).get(class_name, {}).items()
        if loader in _releases(ranges)
    )
    return names or None


def _classes(kind: str) -> Mapping[str, Mapping[str, str]]:
    training_names = data.read("training_names")[kind]
    classes: Mapping[str, Mapping[str, str]] = (
        training_names if kind == SCHEDULES else training_names["classes"]
    )
    return classes


@cache
def _releases(ranges: str, table: str = "training_names") -> frozenset[str]:
    return expand_ranges(ranges, data.read(table)["releases"])


_PACKAGES: Final = frozenset({"keras", "tf_keras", "builtins"})
"""The packages whose modules were asked about; others have classes of users."""


@cache
def is_misplaced(loader: str, module: str, name: str) -> bool:
    """
    Return whether a release does not find a class or an activation that it or another release has
    in a module of Keras.
    """
    if module.partition(".")[0] not in _PACKAGES:
        return False
    rows = data.read("class_modules")["modules"].get(module, {})
    is_found = any(
        name in found.split() and loader in _releases(ranges, "class_modules")
        for ranges, found in rows.items()
    )
    return not is_found and is_in_some_module(name)


def is_in_some_module(name: str) -> bool:
    """Return whether some release has a class or an activation of this name."""
    return name in _names_in_modules()


@cache
def _names_in_modules() -> frozenset[str]:
    modules = data.read("class_modules")["modules"].values()
    return frozenset(name for rows in modules for found in rows.values() for name in found.split())
