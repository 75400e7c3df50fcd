"""
Layer classes that are known to compute wrongly in a 16-bit dtype.

Each row says for which library and policies, and what was measured: on CPU with TensorFlow 2.21,
Keras 3.15.1 and tf_keras 2.21.0, against the same layer in float32 with equal weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from policytool.migration.planning.keep._base import KeepRule
from policytool.model import custom_classes
from policytool.releases.releases import KERAS2, KERAS3, newest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from policytool.model.loaded_model import LoadedModel
    from policytool.model.tree import Site
    from policytool.releases.policy import Policy

_KERAS2: Final = frozenset({newest(KERAS2).id})
_KERAS3: Final = frozenset({newest(KERAS3).id})
_BOTH: Final = _KERAS2 | _KERAS3
_HALF: Final = frozenset({"float16", "mixed_float16"})
_ANY_16: Final = frozenset({"float16", "mixed_float16", "bfloat16", "mixed_bfloat16"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Sensitive:
    """A kind of layer that goes wrong."""

    class_names: frozenset[str]
    libraries: frozenset[str]
    policies: frozenset[str]
    reason: str
    """What goes wrong, as measured."""

    shows: Callable[[Mapping[str, object]], bool] = lambda _: True
    """Whether a layer of the class with this config is meant."""


def _row(
    class_names: str,
    libraries: frozenset[str],
    policies: frozenset[str],
    reason: str,
    shows: Callable[[Mapping[str, object]], bool] = lambda _: True,
) -> Sensitive:
    return Sensitive(
        class_names=frozenset(class_names.split()),
        libraries=libraries,
        policies=policies,
        reason=reason,
        shows=shows,
    )


SENSITIVE: Final[tuple[Sensitive, ...]] = (
    # keras/src/layers/normalization/unit_normalization.py: an l2 norm with epsilon 1e-12, which is
    # 0 in float16
    _row(
        "UnitNormalization",
        _BOTH,
        _HALF,
        (
            "the squares of its inputs do not fit in float16: zero vectors become NaN, and "
            "values of 1e-4 become infinite"
        ),
    ),
    # tf_keras/src/layers/normalization/group_normalization.py does not upcast, Keras 3's does
    _row(
        "GroupNormalization",
        _KERAS2,
        _HALF,
        ("tf_keras sums squares in float16, so results are wrong for values around 300"),
    ),
    # tf_keras reduces in the compute dtype; keras/src/ops/numpy.py, mean, upcasts
    _row(
        "GlobalAveragePooling1D GlobalAveragePooling2D GlobalAveragePooling3D",
        _KERAS2,
        _HALF,
        "tf_keras averages in float16: if all 128x128 values are 10, their average becomes 2",
    ),
    # tf_keras/src/layers/normalization/layer_normalization.py upcasts only where its variables are
    # float32
    _row(
        "LayerNormalization",
        _KERAS2,
        frozenset({"float16"}),
        "tf_keras computes it in float16 under the float16 policy, so results are wrong for "
        "values around 300",
    ),
    # keras/src/layers/preprocessing/normalization.py casts mean and variance to the compute dtype
    _row(
        "Normalization",
        _BOTH,
        _ANY_16,
        "it casts its mean and variance: a mean of 1e5 overflows float16 and is inexact in "
        "bfloat16",
    ),
    # keras/src/layers/merging/dot.py normalises with an epsilon of 1e-12
    _row(
        "Dot",
        _BOTH,
        _HALF,
        "it divides by a sum of squares, which exceeds the range of float16",
        lambda config: config.get("normalize") is True,
    ),
    # its sum over sorted logits has no 16-bit kernel in a traced graph; Keras 3 alone has the
    # activation
    _row(
        "Activation Dense",
        _KERAS3,
        _HALF,
        "its activation is sparsemax, which fails in float16",
        lambda config: config.get("activation") == "sparsemax",
    ),
    # exp(12) is beyond 65504; TensorFlow's automatic mixed precision denies Exp in both 16-bit
    # dtypes, bfloat16 holds it
    _row(
        "Activation Dense Conv1D Conv2D Conv3D EinsumDense",
        _BOTH,
        _HALF,
        "its activation is exponential, which overflows float16 for inputs above 11.09",
        lambda config: config.get("activation") in ("exponential", "exp"),  # may be a dict
    ),
)


def find(loaded: LoadedModel, policy: Policy) -> Iterator[tuple[int, str]]:
    """Yield the layers of such classes."""
    for index, site in enumerate(loaded.sites):
        why = reason(loaded.loader, site, policy.name)
        if why is not None:
            yield index, why


def reason(library: str, site: Site, policy: str) -> str | None:
    """
    Return what goes wrong with a layer under a policy, in the library that loads it; None where
    nothing is known to.
    """
    if custom_classes.is_opaque(site):
        return None
    config: Mapping[str, object] = site.config or {}
    rows = (
        row
        for row in SENSITIVE
        if site.class_name in row.class_names
        and library in row.libraries
        and policy in row.policies
    )
    return next((row.reason for row in rows if row.shows(config)), None)


RULE: Final = KeepRule(name="sensitive", find=find)
