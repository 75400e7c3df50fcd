"""
Training goes on after a conversion as it would have without: one more fit, from the source and from
the result, gives the same weights.
"""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

import policytool
from policytool.commands.migrate import Status
from tests.compat.dialogue import dialogue
from tests.compat.training_steps import CASES
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.compat.dialogue import Dialogue

pytestmark = pytest.mark.compat

RECORD: Final = FIXTURES / "optimizers.zip"
OLD_FILES: Final = tuple(
    name.removesuffix(".h5") for name in zipfile.ZipFile(RECORD).namelist() if name.endswith(".h5")
)
"""What ``fixtures/optimizers.py`` wrote."""

OTHER: Final = {"keras": "tf_keras", "tf_keras": "keras"}
TARGETS: Final = {"keras": "keras3", "tf_keras": "tf_keras"}
NEAR: Final = 2e-6
"""Of weights of about one, after two steps."""

_LOST: Final = "optimizer-state-lost"
LOST: Final = frozenset(
    {
        ("nadam", "keras", "tf_keras"),
        ("nadam", "tf_keras", "keras"),
        ("nadam_in_hdf5", "tf_keras", "keras"),
        ("nadam_scaled", "keras", "tf_keras"),
    }
)
"""
By case, the library that wrote a file and the target: what a warning says is lost. In the graph of
a training step, tf_keras multiplies Nadam's product of momentums once for each weight.
"""

NO_NADAM: Final = "Nadam"


def _weights(trained: Dialogue, library: str, file: Path | str) -> list[list[float]]:
    """Return the weights after more training."""
    result = trained.answer((library, str(file)))
    assert isinstance(result, list), result
    return result


@pytest.fixture(scope="module")
def trained(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dialogue]:
    """Yield the libraries, after they trained and saved all models."""
    with dialogue(compat_python, "training_steps", tmp_path_factory.mktemp("trained")) as found:
        yield found


@pytest.mark.parametrize("library", OTHER)
@pytest.mark.parametrize("name", CASES)
def test_the_other_library_continues_training(
    trained: Dialogue, tmp_path: Path, name: str, library: str
) -> None:
    """
    One more step of training gives nearly the same weights in both libraries, from each format in
    which ``library`` saves the model.
    """
    target = OTHER[library]
    for source in trained.saved[name].get(library, ()):
        output = tmp_path / "model.keras"
        done = policytool.migrate(source, target=TARGETS[target], output=output, verify=False)
        assert done.status is Status.WRITTEN
        lost = [note.message for note in done.plan.notes if note.code == _LOST]
        assert bool(lost) is ((name, library, target) in LOST), lost
        if not lost:
            expected, actual = _weights(trained, library, source), _weights(trained, target, output)
            assert _largest_gap(expected, actual) <= NEAR


def _largest_gap(expected: list[list[float]], found: list[list[float]]) -> float:
    assert len(expected) == len(found)
    return max(
        float(np.abs(np.subtract(*arrays)).max()) for arrays in zip(expected, found, strict=True)
    )


@pytest.mark.parametrize("name", CASES)
def test_keras_2_continues_training_in_the_other_format(
    trained: Dialogue, tmp_path: Path, name: str
) -> None:
    """
    Keras 2 restores the optimizer from HDF5 and from .keras: after a conversion of one to the
    other, the next step of training gives the same weights.
    """
    for source in trained.saved[name].get("tf_keras", ()):
        output = tmp_path / ("model.h5" if source.endswith("keras") else "model.keras")
        done = policytool.migrate(source, target="tf_keras", output=output, verify=False)
        assert _LOST not in {note.code for note in done.plan.notes}
        expected, result = (_weights(trained, "tf_keras", file) for file in (source, output))
        assert expected == result


@pytest.mark.parametrize("name", CASES)
def test_an_older_release_continues_training(trained: Dialogue, tmp_path: Path, name: str) -> None:
    """Adafactor and Nadam save fewer variables in a LossScaleOptimizer than without one."""
    for source in trained.saved[name].get("keras", ()):
        output = tmp_path / "model.keras"
        done = policytool.migrate(source, target="keras3.10", output=output, verify=False)
        assert done.status is Status.WRITTEN
        assert _LOST not in {note.code for note in done.plan.notes}
        expected, result = (_weights(trained, "keras", file) for file in (source, output))
        assert expected == result


@pytest.mark.parametrize("target", ["keras3", "tf_keras"])
@pytest.mark.parametrize("name", OLD_FILES)
def test_training_continues_from_files_of_old_releases(
    trained: Dialogue, tmp_path: Path, name: str, target: str
) -> None:
    """Keras 3 does not restore slot variables from HDF5."""
    source, output = tmp_path / "old.h5", tmp_path / "new.keras"
    with zipfile.ZipFile(RECORD) as archive:
        source.write_bytes(archive.read(f"{name}.h5"))
        expected = json.loads(archive.read("weights.json"))[name]
    done = policytool.migrate(source, target=target, output=output, verify=False)
    assert done.status is Status.WRITTEN
    lost = [note.message for note in done.plan.notes if note.code == _LOST]
    crosses = not (name.startswith("keras3") and target == "keras3")
    if name.endswith("nadam") and crosses:
        assert [NO_NADAM in message for message in lost] == [True]
        return
    assert not lost
    result = _weights(trained, "keras" if target == "keras3" else "tf_keras", output)
    assert _largest_gap(expected, result) <= NEAR
