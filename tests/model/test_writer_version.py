"""Signs of the release that wrote a file, and of the releases that can read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.model import writer_version
from policytool.releases.releases import family_of

if TYPE_CHECKING:
    from pathlib import Path

from tests.helpers.paths import FIXTURES

TARGETS: Final = ("keras3.0", "keras3.6", "keras3.15", "tf2.9", "tf_keras2.21")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name", ["tf2.1/default_float32.json", "tf2.15/rnn_mixed.h5", "keras3.15/mha.keras"]
)
def test_a_conversion_is_no_mixture_of_generations(name: str, target: str, tmp_path: Path) -> None:
    """The target reads short policy names and omitted keys."""
    source = FIXTURES / name
    output = tmp_path / f"written{'.json' if source.suffix == '.json' else '.h5'}"
    done = policytool.migrate(source, target=target, allow=["weight-rewrite"], output=output)
    assert not done.plan.refusals
    if output.exists():
        result = policytool.inspect(str(output)).observations
        assert "mixed-policy-formats" not in {item.code for item in result}
    else:
        assert done.plan.is_empty


def test_mark_is_readable_only_by_the_library_that_writes_the_mark() -> None:
    for mark in writer_version.marks():
        assert mark.releases <= mark.readers
        assert {family_of(release) for release in mark.releases} == {
            family_of(item) for item in mark.readers
        }
