"""
How a loss scale is found: Keras' own rule for a dynamic one, and a search over powers of two.

Nothing here knows of TensorFlow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..library import KERAS3

if TYPE_CHECKING:
    from typing import Any, Callable

DYNAMIC = {"initial": 2.0**15, "multiplier": 2.0}
"""What both libraries begin with unless told otherwise."""

HIGHEST = 24
"""The search ends at 2**24, which lifts the smallest number of float16 to 1."""

LOWEST = -24
_NEARLY = 0.01
"""
Share of the elements that are not zero by which underflow may be above the least, for a scale to do
as well; less does not matter to a verdict either.
"""


def dynamic(family: str, recorded: Any) -> dict[str, Any]:
    """
    Return the rule of a dynamic loss scale: where it begins, what it is divided by where a gradient
    is not finite, and where that ends.

    ``_DynamicLossScaleState.update`` (tf_keras/src/mixed_precision/loss_scale_optimizer.py, and
    DynamicLossScale in TF 2.2 and 2.3) divides by the multiplier and stays at 1;
    ``LossScaleOptimizer`` of Keras 3 (keras/src/optimizers/loss_scale_optimizer.py) always halves,
    and has no floor. Both skip the step. Growing, by default after 2000 steps in a row that are
    finite, is beyond a single step.
    """
    own = recorded if recorded is not None and recorded["kind"] == "dynamic" else DYNAMIC
    multiplier = 2.0 if family == KERAS3 else float(own["multiplier"])
    return {
        "initial": float(own["initial"]),
        "multiplier": multiplier,
        "floor": 2.0**LOWEST if family == KERAS3 else 1.0,
    }


def settled(finite: Callable[[float], bool], rule: dict[str, Any]) -> tuple[float | None, int]:
    """
    Return the scale at which gradients become finite, and how many steps are skipped until then;
    None where they never do.
    """
    scale, skipped = rule["initial"], 0
    while not finite(scale):
        if scale <= rule["floor"] or rule["multiplier"] <= 1:
            return None, skipped
        scale, skipped = max(scale / rule["multiplier"], rule["floor"]), skipped + 1
    return scale, skipped


def ranged(
    finite: Callable[[float], bool], lost: Callable[[float], float]
) -> tuple[float | None, float | None]:
    """
    Return the lowest and the highest power of two that do: nothing overflows, and nearly the least
    underflows.

    ``lost`` is the share of the elements that underflow. Overflow grows with the scale and
    underflow falls, so both ends are found by bisection. Nothing does where even the lowest scale
    overflows.
    """
    start = 0 if finite(1.0) else LOWEST  # a scale below 1 is for what overflows without
    if not finite(2.0**start):
        return None, None
    highest = _last(lambda exponent: finite(2.0**exponent), start, HIGHEST if start == 0 else 0)
    least = lost(2.0**highest) + _NEARLY
    lowest = (
        start
        if lost(2.0**start) <= least
        else _last(lambda exponent: lost(2.0**exponent) > least, start, highest) + 1
    )
    return 2.0**lowest, 2.0**highest


def _last(holds: Callable[[int], bool], first: int, last: int) -> int:
    """
    Return the last number at which something holds that holds at the first, and no longer after it
    has ceased to.
    """
    if holds(last):
        return last
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if holds(middle) else (first, middle)
    return first
