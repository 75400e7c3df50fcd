"""The order of the rewrites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from policytool.formats import format_detection
from policytool.migration.convert import decoding, encoding
from policytool.migration.convert.rewrites import REWRITES, ConversionContext, Rewrite
from policytool.migration.convert.target import Log, Target
from policytool.model import reading
from policytool.releases.releases import KERAS2, KERAS3, newest
from tests.helpers.marks import THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Sequence

BY_NAME: Final = {rewrite.name: rewrite for rewrite in REWRITES}
TARGETS: Final = (
    Target(loader="tf2.4", container="h5"),
    Target(loader="tf2.12", container="keras"),
    Target(loader=newest(KERAS2).id, container="keras"),
    Target(loader=newest(KERAS3).id, container="keras"),
)
FILES: Final = (
    "keras2.3.1/rnn.h5",
    "tf1.15/default_float32.h5",
    "tf2.15/activation_layer.h5",
    "tf2.15/mha_mixed.h5",
    "tf2.15/preprocessing.h5",
    "tf2.15/sequential.h5",
    "tf2.15/tf_op_layers.h5",
    "tf2.15/nested_models.keras",
    "keras3.0/mha_mixed.json",
    "keras3.6/activation_layer.json",
    "keras3.15/bidirectional_mixed.keras",
    "keras3.15/int8.h5",
    "keras3.15/keras_ops.keras",
    "keras3.15/policy_map_mha.keras",
)


def test_rewrites_come_after_the_rewrites_that_they_need() -> None:
    """Each name in the ``after`` of a rewrite is a rewrite that runs before it."""
    assert len(BY_NAME) == len(REWRITES)
    names = list(BY_NAME)
    for rewrite in REWRITES:
        for other in rewrite.after:
            assert names.index(other) < names.index(rewrite.name), (other, rewrite.name)
    assert names[-1] == "measured_differences"


@THOROUGH
def test_another_order_that_is_declared_gives_the_same() -> None:
    """Rewrites that do not name each other can run in another order with the same result."""
    other = another_order()
    assert other[0] is not REWRITES[0]
    assert {rewrite.name for rewrite in other} == set(BY_NAME)
    differing = [
        (file, target)
        for file in FILES
        for target in TARGETS
        if outcome(file, target, REWRITES) != outcome(file, target, other)
    ]
    assert not differing


@pytest.mark.parametrize(
    ("file", "target", "first", "second"),
    [
        ("tf2.12/activation_layer.json", TARGETS[3], "calls", "activations"),
        ("tf2.12/activation_layer.json", TARGETS[3], "renames", "activations"),
        ("keras3.0/mha_mixed.json", TARGETS[1], "attention", "builds"),
    ],
)
def test_a_declared_order_matters(file: str, target: Target, first: str, second: str) -> None:
    """A rewrite that runs before another rewrite in its ``after`` gives a different result."""
    assert first in BY_NAME[second].after
    names = [name for name in BY_NAME if name != second]
    names.insert(names.index(first), second)
    moved = [BY_NAME[name] for name in names]
    assert outcome(file, target, moved) != outcome(file, target, REWRITES)


def another_order() -> tuple[Rewrite, ...]:
    """Return the rewrites in another valid order, which starts with the last ones listed."""
    *left, last = REWRITES
    found: list[Rewrite] = []
    while left:
        waiting = {rewrite.name for rewrite in left}
        free = next(rewrite for rewrite in reversed(left) if waiting.isdisjoint(rewrite.after))
        left.remove(free)
        found.append(free)
    return (*found, last)


def outcome(file: str, target: Target, rewrites: Sequence[Rewrite]) -> tuple[object, ...]:
    """Return a file's model after rewrites in an order, and their messages, sorted."""
    loaded, log = reading.load_model(format_detection.document(FIXTURES / file, file)), Log()
    context = ConversionContext(loaded=loaded, target=target, log=log, allow_weight_rewrite=True)
    root = decoding.decode(loaded)
    for rewrite in rewrites:
        root = rewrite.apply(root, context) if rewrite.applies(context) else root
    root = encoding.keep_known(root, target, log)
    return repr(root), set(log.changes), set(log.refusals), set(log.notes)
