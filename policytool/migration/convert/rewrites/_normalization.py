"""
Normalization: its mean and variance are arguments, or variables that ``adapt`` fills.

With arguments it has no variables from TF 2.6 on; TF 2.1 to 2.5 always have ``mean``, ``variance``
and ``count``. Values that are read from a file give the same in every release, bit for bit
(tf_keras 2.21 and Keras 3.15); Keras 3's ``set_weights`` alone leaves the layer with what it had
before, because only loading calls ``finalize_state``. Where ``adapt`` runs in both, the sums are
made in another order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from policytool.migration.convert.log import display_value
from policytool.releases import generations
from policytool.releases.policy import Policy
from policytool.releases.releases import release_name

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Unit, Value
    from policytool.migration.convert.rewrites._base import ConversionContext

_IN_FLOATX: Final = frozenset({"tf2.1", "tf2.2", "tf2.3", "tf2.4"})
_SMALLEST: Final = 1e-14
"""
The square of Keras' epsilon: later releases divide by no less than its root, TF 2.1 to 2.3 by the
variance's root as it is.
"""


def normalization(unit: Unit, situation: ConversionContext) -> Unit:
    """
    Return the layer as the target has it; a mean and a variance that it cannot be told become
    values of its variables.
    """
    axis = unit.config.get("axis")
    if isinstance(axis, list) and len(axis) == 1 and not situation.target.since("tf2.3"):
        unit = unit.with_config(axis=axis[0])
    unit = _in_floatx(unit, situation)
    mean, variance = unit.config.get("mean"), unit.config.get("variance")
    if mean is None and variance is None:
        return unit
    if situation.target.since("tf2.9"):
        return unit
    values = [_plain(mean), _plain(variance)]
    if None in values or len(values[0] or ()) != len(values[1] or ()):
        situation.log.refuse(
            "argument",
            unit,
            f"{unit.path} (Normalization) has a mean with more than one axis, which "
            f"{situation.target.name} cannot represent",
        )
        return unit
    if not situation.target.since("tf2.4") and min(values[1] or (0,)) < _SMALLEST:
        situation.log.refuse(
            "argument",
            unit,
            f"{unit.path} (Normalization) has a variance of 0, which causes a division by zero in "
            f"{situation.target.name}",
        )
        return unit
    return _as_variables(unit, values[0] or [], values[1] or [], situation)


def _in_floatx(unit: Unit, situation: ConversionContext) -> Unit:
    """
    Return the layer in what it computed in: up to TF 2.4 that is floatx, whatever its policy
    (``call`` in normalization.py of TF 2.3 and 2.4).
    """
    policy = unit.config.get("dtype")
    if not isinstance(policy, Policy) or policy.compute_dtype in {None, "float32"}:
        return unit
    if situation.source_release in _IN_FLOATX and situation.target.since("tf2.5"):
        situation.log.change(
            "dtype",
            unit,
            f"{policy.name} becomes float32, the compute dtype of Normalization in "
            f"{release_name(situation.source_release)}",
        )
        return unit.with_config(dtype=generations.parse("float32", situation.loaded.generation))
    if situation.source_release not in _IN_FLOATX and not situation.target.since("tf2.5"):
        situation.log.refuse(
            "policy",
            unit,
            f"{unit.path} (Normalization) has the policy {policy.name}, but "
            f"{situation.target.name} always computes this layer in float32",
        )
    return unit


def _as_variables(
    unit: Unit, mean: list[float], variance: list[float], situation: ConversionContext
) -> Unit:
    left = unit.without("mean", "variance")
    given: dict[str, Value] = {"mean": [*mean], "variance": [*variance], "count": 0}
    if len(mean) == 1:  # one value for all, whatever the axes have
        if not situation.target.since("tf2.3"):
            situation.log.refuse(
                "argument",
                unit,
                f"{unit.path} (Normalization) has a single mean of {display_value(mean[0])} for "
                f"all inputs, which {situation.target.name} cannot represent",
            )
            return unit
        left, given = (
            left.with_config(axis=None),
            {"mean": mean[0], "variance": variance[0], "count": 0},
        )
    situation.log.change(
        "variables",
        unit,
        f"mean and variance of Normalization become variables because {situation.target.name} "
        "stores them only as weights",
    )
    return replace(left, given=given)


def _plain(value: Value) -> list[float] | None:
    """Return a number or a list of numbers as a list; None for anything else."""
    items = value if isinstance(value, list) else [value]
    numbers = [float(item) for item in items if isinstance(item, int | float)]
    return numbers if len(numbers) == len(items) and numbers else None
