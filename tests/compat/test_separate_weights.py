"""
An architecture and its weights, joined by ``migrate --weights``, predict in the newest libraries
what the model predicted in the release that wrote it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

import policytool
from policytool.commands.migrate import Status
from tests.compat.asking import Job, ask
from tests.compat.cases import CASES, KERAS, LIBRARIES
from tests.compat.test_migrated import EPS, outputs
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled
from tests.helpers.separate_files import separate
from tests.helpers.small_models import dense, sequential

if TYPE_CHECKING:
    from tests.compat.asking import Loaded
    from tests.model.test_truth import Case

pytestmark = pytest.mark.compat

RELEASES: Final = ("tf2.3", "tf2.4", "tf2.15", "keras3.0", "keras3.3", "keras3.15")
NOT_JOINED: Final = frozenset({"keras_ext_is_hdf5", "lambda", "subclassed", "text_vectorization"})
"""Cases that are not all in an architecture and weights, and code of another Python."""

MODELS: Final = sampled(
    "separate files for the newest libraries",
    [
        case
        for case in CASES
        if case.release in RELEASES
        and case.format in {"h5", "keras"}
        and case.name not in NOT_JOINED
        and case.truth.get("outputs")
    ],
    share=12,
)
FACTOR: Final = 32
"""How many eps of the widest rounding two libraries may be apart."""


@pytest.mark.parametrize("library", LIBRARIES)
def test_joined_models_predict_the_recorded_outputs(
    compat_python: Path, tmp_path: Path, library: str
) -> None:
    """Or are blocked for the same reason as whole files."""
    joined: list[tuple[Case, Job]] = []
    for number, case in enumerate(MODELS):
        output = tmp_path / f"{number}{'.keras' if library == KERAS else '.h5'}"
        architecture, weights = separate(Path(case.path), tmp_path / str(number))
        done = policytool.migrate(
            architecture,
            weights=weights,
            target=library,
            output=output,
            allow=["weight-rewrite"],
            verify=False,
        )
        assert done.status is Status.WRITTEN or done.blockers, case.path
        if done.status is Status.WRITTEN:
            sample = f"{case.folder}/{case.name}"
            joined.append((case, Job(format=output.suffix[1:], path=str(output), sample=sample)))
    assert len(joined) > len(MODELS) / 2
    answers = ask(compat_python, library, [job for _, job in joined]).loaded
    errors = {case.path: answers[job].error for case, job in joined}
    assert not {path: error for path, error in errors.items() if error is not None}
    far = {
        case.path: _distance(case, answers[job])
        for case, job in joined
        if len(list(outputs(answers[job]))) == len(case.truth["outputs"])  # not of texts
    }
    assert len(far) > len(joined) / 2
    assert not {path: distance for path, distance in far.items() if distance > FACTOR}


@pytest.mark.parametrize(
    "name", ["tf2.15/weights_only.ckpt.index", "keras3.15/sharded.weights.json"]
)
def test_predictions_of_the_separate_files_are_compared(
    compat_python: Path, tmp_path: Path, name: str
) -> None:
    """The library builds the architecture and loads the weights, as a user does."""
    architecture = tmp_path / "architecture.json"
    config = {**sequential(dense(units=3, batch_input_shape=[None, 6])), "keras_version": "2.15.0"}
    if name.startswith("keras3"):
        shutil.copy(FIXTURES / "keras3.15/default_float32.json", architecture)
    else:
        architecture.write_text(json.dumps(config), encoding="utf-8")
    done = policytool.migrate(
        architecture,
        weights=FIXTURES / name,
        target="keras3",
        output=tmp_path / "joined.keras",
        verify=True,
        python=str(compat_python),
    )
    assert (done.status, done.is_verified) == (Status.WRITTEN, True)


def _distance(case: Case, loaded: Loaded) -> float:
    """Return how many eps the outputs are from the recorded ones."""
    eps = max(
        EPS[layer["compute_dtype"]]
        for layer in case.truth["layers"]
        if layer["compute_dtype"] in EPS
    )
    return max(
        float(
            np.abs(made.astype("float64") - np.reshape(recorded["values"], recorded["shape"])).max()
            / (eps * max(np.abs(recorded["values"]).max(), 1e-3))
        )
        for made, recorded in zip(outputs(loaded), case.truth["outputs"], strict=True)
    )
