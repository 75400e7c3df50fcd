"""Which releases compute a layer otherwise than the release before."""

from __future__ import annotations

import pytest

from policytool.releases import behaviour
from policytool.releases.releases import KERAS2, KERAS3, RELEASES


@pytest.mark.parametrize("family", [KERAS2, KERAS3])
def test_releases_are_in_order_and_end_with_the_newest(family: str) -> None:
    """The order is that of the table of releases."""
    order = [release.id for release in RELEASES if release.family == family]
    result = behaviour.measured_releases(family)
    assert list(result) == sorted(result, key=order.index)
    assert result[-1] == order[-1]


def test_every_minor_release_of_keras3_is_measured() -> None:
    """Reports name single minor releases."""
    names = [release.id for release in RELEASES if release.family == KERAS3]
    assert list(behaviour.measured_releases(KERAS3)) == names


def test_predictions_of_random_crop_changed_twice() -> None:
    """Keras 3.6 and 3.8 predict other values than the release before."""
    changes = behaviour.changing_releases("RandomCrop", {"height": 4, "width": 4}, KERAS3)
    assert changes == frozenset({"keras3.6", "keras3.8"})


def test_results_of_dense_never_changed() -> None:
    """The test covers Keras 2 and Keras 3."""
    assert behaviour.changing_releases("Dense", {"units": 2}, KERAS3) == frozenset()
    assert behaviour.changing_releases("Dense", {"units": 2}, KERAS2) == frozenset()


def test_unmeasured_class_has_no_known_changes() -> None:
    """No statement is made on such a class."""
    assert behaviour.changing_releases("NoSuchLayer", {}, KERAS3) is None
