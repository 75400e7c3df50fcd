"""The truth about pairs, on arrays made by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trained import truth

ROWS = 1000


def harms(before: object, after: object, labels: object, metric: str) -> list[str]:
    """Return the harm to one output, ``y``."""
    known = {} if labels is None else {"y": labels}
    return truth.harms({"y": before}, {"y": after}, known, {"y": metric})


def scores(changed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities of two classes, and others that give the first rows another class."""
    before = np.tile([0.9, 0.1], (ROWS, 1))
    after = before.copy()
    after[:changed] = [0.1, 0.9]
    return before, after


def test_the_same_predictions_do_no_harm() -> None:
    """Nothing changed, nothing is worse."""
    before, _ = scores(0)
    assert harms(before, before, np.zeros(ROWS), "accuracy") == []


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_value_that_is_no_longer_finite_is_harm(value: float) -> None:
    """One value of one row is enough; the reference's own are not counted."""
    before, after = scores(0)
    after[7, 0] = value
    assert harms(before, after, np.zeros(ROWS), "accuracy") == ["y: not finite"]
    assert harms(after, after, None, "accuracy") == []


def test_classes_may_change_in_one_row_of_a_hundred() -> None:
    """More than 1 % is harm, by the changes and by the accuracy."""
    assert harms(*scores(9), np.zeros(ROWS), "accuracy") == []
    assert harms(*scores(11), np.zeros(ROWS), "accuracy") == [
        "y: 0.0110 changed",
        "y: accuracy 1 to 0.989",
    ]


def test_classes_that_change_are_harm_even_if_the_accuracy_rises() -> None:
    """A user sees other answers; labels are not needed for that."""
    before, after = scores(20)
    assert harms(before, after, np.ones(ROWS), "accuracy") == ["y: 0.0200 changed"]
    assert harms(before, after, None, "accuracy") == ["y: 0.0200 changed"]


def test_independent_labels_are_compared_with_one_half() -> None:
    """Values that do not sum to 1 are labels, and each of them counts."""
    before = np.full((ROWS, 3), 0.8)
    after = before.copy()
    after[:, 0] = 0.4
    assert truth.changes(before, after, "accuracy") == pytest.approx(1 / 3)
    assert truth.score(np.ones((ROWS, 3)), after, "accuracy") == pytest.approx(2 / 3)


def test_a_score_without_a_sigmoid_is_compared_with_zero() -> None:
    """The sigmoid of 0 is 0.5."""
    before = np.full((ROWS, 1), 0.2)
    assert truth.changes(before, before + 0.5, "sign") == 0
    assert truth.changes(before, before - 0.5, "sign") == 1
    assert truth.score(np.ones((ROWS, 1)), before, "sign") == 1


def test_an_error_may_grow_by_one_percent() -> None:
    """The growth is relative to the reference's error; less error is no harm."""
    labels = np.zeros((ROWS, 1))
    before = np.full((ROWS, 1), 2.0)
    assert harms(before, before * 1.0099, labels, "mae") == []
    assert harms(before, before * 1.0101, labels, "mae") == ["y: mae 2 to 2.0202"]
    assert harms(before, before * 1.0101, labels, "mse") == ["y: mse 4 to 4.0812"]
    assert harms(before, before * 0.5, labels, "mae") == []


def test_the_mean_error_takes_labels_of_another_shape() -> None:
    """Labels of one axis do not broadcast against a column."""
    labels = np.arange(4.0)
    assert truth.score(labels, labels[:, None], "mae") == 0


def test_a_likelihood_may_fall_by_a_hundredth() -> None:
    """Likelihoods are compared in nats, because their zero means nothing."""
    labels = np.ones((ROWS, 1))
    before = np.full((ROWS, 1), 0.5)
    assert harms(before, before * np.exp(-0.0099), labels, "nll") == []
    assert len(harms(before, before * np.exp(-0.0101), labels, "nll")) == 1


def test_the_area_under_the_curve_counts_ordered_pairs() -> None:
    """Three of four pairs are in order."""
    labels = np.array([[1.0], [0.0], [1.0], [0.0]])
    result = np.array([[0.9], [0.8], [0.7], [0.1]])
    assert truth.score(labels, result, "auc") == pytest.approx(3 / 4)
    assert truth.changes(result, 1 - result, "auc") == 1
    assert truth.changes(10 * result, -result, "auc") == 0  # scores have no side of 0.5


def test_the_overlap_of_masks_is_a_mean_over_images() -> None:
    """Small masks count as much as large ones."""
    labels = np.zeros((2, 2, 2, 1))
    labels[:, 0] = 1
    found = labels.copy()
    found[1, 0, 0] = 0
    assert truth.score(labels, found, "iou") == pytest.approx((1 + 1 / 2) / 2)


def test_score_of_an_order_is_the_share_of_ordered_pairs() -> None:
    """Equal scores have no order."""
    labels = np.array([[3.0, 2.0, 1.0]])
    assert truth.score(labels, np.array([[9.0, 7.0, 8.0]]), "order") == pytest.approx(2 / 3)
    assert truth.score(labels, np.array([[9.0, 9.0, 8.0]]), "order") == pytest.approx(2 / 3)


def test_concordance_leaves_out_pairs_whose_order_is_unknown() -> None:
    """A censored time does not order later times."""
    labels = np.array([[1.0, 1.0], [2.0, 0.0], [3.0, 1.0]])
    # the second was lost to follow-up: only pairs with the first are known
    assert truth.score(labels, np.array([[5.0], [1.0], [9.0]]), "concordance") == pytest.approx(0.5)


def test_pinball_loss_weighs_errors_by_direction() -> None:
    """Below the target, the high quantile has the largest weight."""
    labels = np.array([[1.0]])
    result = np.array([[0.0, 0.0, 0.0]])
    assert truth.score(labels, result, "pinball") == pytest.approx((0.1 + 0.5 + 0.9) / 3)
    assert truth.score(labels, result + 2, "pinball") == pytest.approx((0.9 + 0.5 + 0.1) / 3)


def test_likelihood_losses_have_their_minimum_at_the_truth() -> None:
    """The mean of the labels is the most likely mean."""
    labels = np.full((ROWS, 1), 3.0)
    for metric in ("poisson", "gamma"):
        right, *wrong = (truth.score(labels, labels * factor, metric) for factor in (1, 0.9, 1.1))
        assert right < min(wrong)


def test_mixture_of_one_distribution_has_the_likelihood_of_this_distribution() -> None:
    """Weights far below the others leave one distribution."""
    result = np.array([[0.0, -99, -99, 1, 5, 5, 0, 0, 0]])
    density = np.exp(-0.5)  # without the constant of the normal distribution
    assert truth.score(np.array([[2.0]]), result, "mixture") == pytest.approx(-np.log(density))


def test_a_peak_is_as_far_off_as_the_largest_values_are() -> None:
    """From (1, 1) to (4, 5) it is 5 pixels."""
    labels, found = np.zeros((2, 1, 8, 8, 1))
    labels[0, 1, 1] = found[0, 4, 5] = 1
    assert truth.score(labels, found, "peak") == 5


def test_images_are_compared_in_decibels_of_their_range() -> None:
    """An error of 1 % of the range is 40 dB."""
    before = np.random.default_rng(1).uniform(0, 1, (20, 8, 8, 1))
    before[0, 0, 0], before[0, 0, 1] = 0, 1
    assert harms(before, before + 0.0099, None, "psnr") == []
    assert harms(before, before + 0.0102, None, "psnr") == ["y: 39.8 dB"]


def test_vectors_change_if_another_is_nearest() -> None:
    """The length of a vector does not matter."""
    angles = np.array([0.0, 0.1, 1.0, 1.2])
    before = np.stack([np.cos(angles), np.sin(angles)], 1)
    assert truth.changes(before, 3 * before, "neighbours") == 0
    angles[0] = 1.1
    after = np.stack([np.cos(angles), np.sin(angles)], 1)
    assert truth.changes(before, after, "neighbours") == 1
    assert harms(before, after, None, "neighbours") == ["y: 1.0000 changed"]
