"""
Whether predictions of a candidate are worse than those of its reference, by plain rules on all rows
and their labels.

Harm is a new NaN or infinity; a score that drops by more than 0.01; an error that grows by more
than 1 % (of a likelihood by 0.01); more than 1 % of the rows with another class, on another side of
the threshold or with another nearest neighbour; and an image that differs by less than 40 dB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Metric = Callable[[Any, Any], float]

_LARGEST: Final = 0.01
_DECIBELS: Final = 40.0
_NEIGHBOURS: Final = 2000
"""Vectors among which the nearest are looked for."""

_TINY: Final = 1e-7
"""The least probability and rate in a logarithm, as in Keras."""

_LEVELS: Final = (0.1, 0.5, 0.9)


def harms(
    reference: Mapping[str, Any],
    candidate: Mapping[str, Any],
    labels: Mapping[str, Any],
    metrics: Mapping[str, str],
) -> list[str]:
    """
    Return what is worse, for each output; arrays are by the name of the output, and ``metrics`` is
    what each is scored by.

    Without labels, only what changed counts.
    """
    found = []
    for name, metric in metrics.items():
        before, after = (np.asarray(side[name], "float64") for side in (reference, candidate))
        found += [f"{name}: {harm}" for harm in _harms(before, after, labels.get(name), metric)]
    return found


def _harms(before: Any, after: Any, labels: Any, metric: str) -> list[str]:
    if (np.isfinite(before) & ~np.isfinite(after)).any():
        return ["not finite"]
    actual = []
    changed = changes(before, after, metric)
    if changed > _LARGEST:
        actual.append(f"{changed:.4f} changed")
    if metric == "psnr":
        decibels = _noise(before, after)
        if decibels < _DECIBELS:
            actual.append(f"{decibels:.1f} dB")
    elif labels is not None and metric != "neighbours":
        scores = [score(labels, side, metric) for side in (before, after)]
        drop = scores[0] - scores[1] if metric in _SCORES else scores[1] - scores[0]
        is_absolute = metric in _SCORES or metric in _LIKELIHOODS
        if drop > _LARGEST * (1 if is_absolute else scores[0]):
            actual.append(f"{metric} {scores[0]:.5g} to {scores[1]:.5g}")
    return actual


def changes(before: Any, after: Any, metric: str) -> float:
    """
    Return the share of rows that changed; 0 for numbers.

    Of several labels for each row, it is the share of the labels.
    """
    if metric == "neighbours":
        return float((_nearest(before) != _nearest(after)).mean())
    if metric == "accuracy" and before.shape[-1] > 1 and not _are_labels(before):
        return float((before.argmax(-1) != after.argmax(-1)).mean())
    if metric == "sign":
        return float(((before > 0) != (after > 0)).mean())
    if metric == "accuracy" or (metric == "auc" and _are_probabilities(before)):
        return float(((before > 0.5) != (after > 0.5)).mean())
    return 0.0


def score(labels: Any, found: Any, metric: str) -> float:
    """Return how good predictions are: more is better of scores, less of errors."""
    return {**_SCORES, **_LIKELIHOODS, **_ERRORS}[metric](np.asarray(labels), found)


def _accuracy(labels: Any, found: Any) -> float:
    if found.shape[-1] > 1 and not _are_labels(found):
        return float((found.argmax(-1) == labels).mean())
    return float(((found > 0.5) == (labels > 0.5)).mean())


def _sign(labels: Any, found: Any) -> float:
    return float(((found > 0) == (labels > 0.5)).mean())


def _auc(labels: Any, found: Any) -> float:
    """Return the area under the curve; equal scores are ranked in the order of the rows."""
    order = np.argsort(np.argsort(found[:, 0]))
    positive = labels[:, 0] > 0.5
    ranks = order[positive].sum() - positive.sum() * (positive.sum() - 1) / 2
    return float(ranks / (positive.sum() * (~positive).sum()))


def _iou(labels: Any, found: Any) -> float:
    """Return the mean intersection over union of the images."""
    both, either = (
        join(found > 0.5, labels > 0.5).reshape(len(found), -1).sum(1)
        for join in (np.logical_and, np.logical_or)
    )
    return float((both / np.maximum(either, 1)).mean())


def _order(labels: Any, found: Any) -> float:
    """Return the share of pairs of each list that are in the right order; (rows, items)."""
    first, second = np.triu_indices(found.shape[1], 1)
    scores, expected = (side[:, first] - side[:, second] for side in (found, labels))
    return float((scores * expected > 0).mean())


def _concordance(labels: Any, found: Any) -> float:
    """
    Return the share of pairs, of which one is known to have failed first, in which that one has the
    higher risk (Harrell's C); labels are the time and whether it is that of a failure.
    """
    right = pairs = 0
    for (time, is_failure), risk in zip(labels, found[:, 0], strict=True):
        if is_failure:
            later = labels[:, 0] > time
            pairs += int(later.sum())
            right += int((found[later, 0] < risk).sum())
    return right / pairs


def _poisson(labels: Any, found: Any) -> float:
    return float((found - labels * np.log(found + _TINY)).mean())


def _gamma(labels: Any, found: Any) -> float:
    return float((labels / found + np.log(found)).mean())


def _nll(labels: Any, found: Any) -> float:
    chance = np.clip(found, _TINY, 1 - _TINY)
    return float(-np.where(labels > 0.5, np.log(chance), np.log(1 - chance)).mean())


def _mixture(labels: Any, found: Any) -> float:
    """Return the negative log likelihood of a mixture of normal distributions."""
    weights, means, widths = np.split(found, 3, -1)
    logs = weights - np.log(np.exp(weights).sum(-1, keepdims=True)) - widths
    logs -= 0.5 * ((labels - means) / np.exp(widths)) ** 2
    return float(-np.log(np.exp(logs).sum(-1) + 1e-300).mean())


def _mae(labels: Any, found: Any) -> float:
    return float(np.abs(found - labels.reshape(found.shape)).mean())


def _mse(labels: Any, found: Any) -> float:
    return float(np.square(found - labels.reshape(found.shape)).mean())


def _pinball(labels: Any, found: Any) -> float:
    """Return the loss of the quantiles 0.1, 0.5 and 0.9."""
    left = labels - found
    levels = np.array(_LEVELS)
    return float(np.maximum(levels * left, (levels - 1) * left).mean())


def _peak(labels: Any, found: Any) -> float:
    """Return how far the peaks of heat maps are from those of the labels, in pixels."""
    rows, columns, channels = found.shape[1:]
    places = [
        np.unravel_index(side.reshape(len(side), -1, channels).argmax(1), (rows, columns))
        for side in (found, labels)
    ]
    return float(np.hypot(places[0][0] - places[1][0], places[0][1] - places[1][1]).mean())


_SCORES: Final[Mapping[str, Metric]] = {
    "accuracy": _accuracy,
    "sign": _sign,
    "auc": _auc,
    "iou": _iou,
    "order": _order,
    "concordance": _concordance,
}
_LIKELIHOODS: Final[Mapping[str, Metric]] = {
    "poisson": _poisson,
    "gamma": _gamma,
    "nll": _nll,
    "mixture": _mixture,
}
_ERRORS: Final[Mapping[str, Metric]] = {
    "mae": _mae,
    "mse": _mse,
    "pinball": _pinball,
    "peak": _peak,
}


def _noise(before: Any, after: Any) -> float:
    """Return the ratio of the reference's range to the error, in decibels."""
    spread = before.max() - before.min()
    return float(20 * np.log10(spread / max(np.sqrt(np.square(before - after).mean()), 1e-12)))


def _are_probabilities(found: Any) -> bool:
    return bool(found.min() >= 0 and found.max() <= 1)


def _are_labels(found: Any) -> bool:
    """Return whether the values of a row are independent probabilities."""
    return _are_probabilities(found) and bool(np.abs(found.sum(-1) - 1).max() > 0.1)


def _nearest(found: Any) -> Any:
    vectors = found[:_NEIGHBOURS]
    vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    near = vectors @ vectors.T
    np.fill_diagonal(near, -np.inf)
    return near.argmax(1)
