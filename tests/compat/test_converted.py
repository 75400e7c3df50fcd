"""
Fixtures that ``migrate --target`` converts from one of the newest libraries to the other: they
load, keep their policies, and predict what they did.

``fixtures/conversions.py`` converts, asks and judges; here it is given a spread of the fixtures, in
which each format, each release and a sample of the cases occurs, and with ``POLICYTOOL_SAMPLE=all``
every fixture for both libraries. The table at the end of the run says what came of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.commands.migrate import Status
from policytool.support.errors import ModelFileError
from tests.compat.asking import run_script
from tests.compat.cases import LIBRARIES, RELEASES
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from tests.compat.converting import Converted

pytestmark = pytest.mark.compat

CONFIGS: Final = Path(__file__).with_name("configs.py")
_APART: Final = "an activation that is a layer becomes a separate layer"
_PREFIX: Final = (
    "Keras 2 calls the backward layer backward_ and its name, and so it is called afterwards"
)
_NO_MAPS: Final = "Keras 2 has no policy maps, so every layer gets a policy of its own"
CHANGED: Final = {
    "keras3.15": {
        "activation_layer": _APART,
        "bidirectional_mixed": _PREFIX,
        "policy_map": _NO_MAPS,
        "policy_map_no_default": _NO_MAPS,
        "wrappers": _PREFIX,
        "wrappers_mixed": "the wrapper gets the policy of its layer on the way back to Keras 3",
    },
    "tf_keras2.21": {
        "rnn": "weights before hard_sigmoid are multiplied, and back, with a rounding each",
        "tf_op_layers": "ops of Keras 3 have no policy, nor arguments that say the default",
        "wrappers": "Keras 3 gets the backward layer that Keras 2 makes, and Keras 2 keeps it",
    },
}
"""
Cases that are not equal after there and back, and why: what is left is in none of the files
between, or was asked for.
"""

OTHER: Final = {"keras3.15": "tf_keras", "tf_keras2.21": "keras3"}
SUFFIX: Final = {"keras3": ".keras", "tf_keras": ".h5"}
MODULE: Final = {"keras3.15": "keras", "tf_keras2.21": "tf_keras"}


@pytest.mark.parametrize("release", RELEASES)
def test_converted_models_predict_the_same_or_are_rejected(
    conversions: tuple[Converted, ...], release: str
) -> None:
    """A rejected model has a code and a reason, and no conversion fails."""
    actual = [item for item in conversions if item.release == release]
    assert actual
    assert not [
        f"{item.name} for {item.target}: {item.outcome}" for item in actual if item.word == "failed"
    ]
    assert not [
        item.outcome for item in actual if item.word == "refused" and len(item.outcome.split()) < 6
    ]


@pytest.mark.parametrize("library", LIBRARIES)
def test_most_are_converted(conversions: tuple[Converted, ...], library: str) -> None:
    """Although a spread has each of the odd ones that cannot be, and of the plain ones few."""
    words = [item.word for item in conversions if item.target == library]
    assert sum(word in {"same", "near", "loads"} for word in words) > 0.6 * len(words)


@pytest.mark.parametrize("library", LIBRARIES)
def test_conversion_to_the_other_library_and_back_gives_an_equal_model(
    compat_python: Path, tmp_path: Path, library: str
) -> None:
    """The library of the source loads the result with an equal config and the same weights."""
    sources = [
        path for path in sorted((FIXTURES / library).iterdir()) if path.suffix in {".h5", ".keras"}
    ]
    pairs = [
        pair
        for source in sources
        if (pair := _there_and_back(source, library, tmp_path)) is not None
    ]
    result = _loaded(
        compat_python, MODULE[library], [str(path) for pair in pairs for path in pair], tmp_path
    )
    actual = {
        source.name: (before, after)
        for (source, _), before, after in zip(pairs, result[::2], result[1::2], strict=True)
        if "error" not in before
    }
    assert not {name: after["error"] for name, (_, after) in actual.items() if "error" in after}
    same = {
        name: _said(before["config"]) == _said(after["config"])
        and before["weights"] == after["weights"]
        for name, (before, after) in actual.items()
    }
    assert len(same) > len(sources) / 2
    assert {Path(name).stem for name in same if not same[name]} == CHANGED[library].keys()


def _there_and_back(source: Path, library: str, folder: Path) -> tuple[Path, Path] | None:
    """
    Return a file and what came back of it; None for one that holds no model, or that the other
    library cannot have.
    """
    there = folder / f"{source.name}.there{SUFFIX[OTHER[library]]}"
    back = folder / f"{source.name}.back{source.suffix}"
    try:
        done = policytool.migrate(
            source, target=OTHER[library], allow=["weight-rewrite"], output=there
        )
    except ModelFileError:
        return None
    if done.status is not Status.WRITTEN:
        assert done.plan.refusals, source
        return None
    again = policytool.migrate(there, target=library, allow=["weight-rewrite"], output=back)
    unreadable = {refusal.code for refusal in again.plan.refusals} == {
        "h5-operations"
    }  # the source is an HDF5 file that its own library does not read
    assert unreadable or again.status is Status.WRITTEN, (source, again.plan.refusals)
    return None if unreadable else (source, back)


_SHAPE: Final = "batch_input_shape"
_UNSAID: Final = {"build_config", "vocabulary"}


def _said(config: Any) -> Any:  # JSON of any shape
    """
    Return a config without what says nothing of the model.

    Input shapes of layers within models, beside those of their input layers, which have ``sparse``;
    the batch that a layer was built on; and whether a vocabulary stands in the config or in a file
    beside it.
    """
    if isinstance(config, list):
        return [_said(item) for item in config]
    if not isinstance(config, dict):
        return config
    return {
        key: _said(item)
        for key, item in config.items()
        if key not in _UNSAID and not (key == _SHAPE and "sparse" not in config)
    }


def _loaded(python: Path, library: str, paths: list[str], scratch: Path) -> list[dict[str, Any]]:
    """Return what a library says of the models in files."""
    listed, results = scratch / "paths.json", scratch / "results.json"
    listed.write_text(json.dumps(paths), encoding="utf-8")
    run_script(python, CONFIGS, library, listed, results)
    result: list[dict[str, Any]] = json.loads(results.read_text(encoding="utf-8"))
    return result


@pytest.mark.parametrize("release", ["tf2.3", "tf2.15"])
def test_outputs_of_both_directions_keep_their_dtypes(
    compat_python: Path, tmp_path: Path, release: str
) -> None:
    """The directions of this Bidirectional return float16 and float32."""
    result = policytool.migrate(
        FIXTURES / release / "bidirectional_mixed.h5",
        target="keras3",
        output=tmp_path / "converted.keras",
        verify=True,
        python=str(compat_python),
    )
    assert result.status is Status.WRITTEN
    assert result.is_verified
