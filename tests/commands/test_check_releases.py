"""``check --against`` in a range of releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from policytool.commands.check_releases import (
    changing_releases,
    first_differing_check,
    release_range,
)
from policytool.numerics.environments import environments
from policytool.support.errors import UsageError, WorkerError
from tests.conftest import run
from tests.helpers.convertible_models import input3, keras3, layer3, tensor, written
from tests.helpers.example_checks import SIDES, output
from tests.helpers.example_checks import check as example_check
from tests.helpers.example_checks import run as example_run
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from policytool.numerics.check_results.checks import Check

RELEASES: Final = release_range("keras3.3..keras3.15")


def first_differing(
    place: int, changing: Collection[str] = (), failing: Collection[str] = ()
) -> tuple[list[str], Check]:
    """Return the releases that ran, and the result, if releases from a place on differ."""
    ran: list[str] = []

    def check_in(release: str) -> Check:
        if release in failing:
            raise WorkerError("not-loadable", "cannot load the model")
        ran.append(release)
        is_other = RELEASES.index(release) >= place
        measured = example_run(outputs=(output("y", 0.5 if is_other else 0.0),))
        check = example_check(measured, candidate=SIDES["reference"]).check
        assert check is not None
        return replace(check, against="run.h5")

    return ran, first_differing_check(RELEASES, changing, check_in)


def notes(check: Check) -> str:
    """Return the notes of a check."""
    return "\n".join(note.message for note in check.notes)


@pytest.mark.parametrize("place", range(1, len(RELEASES)))
def test_the_first_release_with_other_predictions_is_named(place: int) -> None:
    ran, check = first_differing(place)
    text = f"Keras {RELEASES[place].removeprefix('keras')} is the first release whose"
    assert text in notes(check)
    assert not check.is_equal
    assert len(ran) == len(set(ran)) <= 2 + (len(RELEASES) - 1).bit_length()


def test_measured_changes_are_tried_first() -> None:
    place = 1
    ran, _ = first_differing(place, changing={RELEASES[place]})
    assert ran == [RELEASES[0], RELEASES[-1], RELEASES[place]]


def test_a_wrong_table_changes_only_the_order() -> None:
    _, check = first_differing(7, changing={RELEASES[2], RELEASES[4]})
    assert f"Keras {RELEASES[7].removeprefix('keras')} is the first release" in notes(check)


def test_releases_that_cannot_run_the_model_are_skipped() -> None:
    """A note has the reason."""
    middle = RELEASES[5:7]
    ran, check = first_differing(8, failing=middle)
    assert not {*ran} & {*middle}
    assert "cannot load the model" in notes(check)
    assert f"Keras {RELEASES[8].removeprefix('keras')} is the first release" in notes(check)


def test_both_ends_of_the_range_run_first() -> None:
    ran, check = first_differing(len(RELEASES))
    assert (ran, check.is_equal) == ([RELEASES[0], RELEASES[-1]], True)
    ran, check = first_differing(0)
    assert (ran, check.is_equal) == ([RELEASES[0]], False)
    assert "Keras 3.3, the first release of the range, makes other predictions" in notes(check)


def test_releases_of_a_range_are_those_with_environments() -> None:
    assert RELEASES[0] == "keras3.3"
    assert RELEASES[-1] == "keras3.15"
    assert {*release_range("tf2.4..tf_keras2.21")} < {*environments()}
    assert release_range("tf2.15") == release_range("../python") == release_range(None) == ()


@pytest.mark.parametrize("text", ["keras3.15..keras3.3", "tf2.4..keras3.3", "keras3.3..python"])
def test_other_ranges_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError, match="--python"):
        release_range(text)


def test_a_range_needs_a_recorded_run() -> None:
    model = str(FIXTURES / "tf2.15/default_float32.h5")
    ended = run("check", model, "--python=tf2.4..tf2.15")
    assert ended.code == 2
    assert "A range of releases in --python needs --against FILE" in " ".join(ended.err.split())


def test_measured_changes_are_those_of_the_layers(tmp_path: Path) -> None:
    crop = layer3("RandomCrop", "crop", tensor("x"), height=4, width=4)
    loaded = written(tmp_path / "model.json", keras3(input3("x", 8, 8, 3), crop))
    assert changing_releases(loaded, RELEASES) == {"keras3.6", "keras3.8"}
