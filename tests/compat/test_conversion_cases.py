"""
Small models of one of the newest libraries, converted for the other: each loads there with
``compile=True`` and ``compile=False`` and predicts the same, or is refused.

``conversion_models.py`` has the models. ``REFUSED`` has what cannot be converted; tests below prove
in the libraries that it cannot.
"""

from __future__ import annotations

import io
import os
import subprocess
import zipfile
from typing import TYPE_CHECKING, Any, Final

import h5py
import pytest

import policytool
from policytool.commands.migrate import Status
from tests.compat import mask_models
from tests.compat.asking import ENVIRONMENT
from tests.compat.conversion_models import CASES, FORMATS
from tests.compat.dialogue import dialogue
from tests.helpers.sampling import LIBRARY_SHARE, sampled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.compat.dialogue import Dialogue

pytestmark = pytest.mark.compat

TARGETS: Final = {"keras": ("tf_keras", "tf_keras"), "tf_keras": ("keras3", "keras")}
"""By the library that wrote a file, the target and the library that loads what becomes of it."""

NEAR: Final = 1e-6
"""Of the largest value; float32 has eight digits."""

REFUSED: Final[dict[tuple[str, str], str]] = {
    **{
        ("keras", name): "variables"
        for name in (
            *("own_model_within", "subclassed", "subclassed_and_trained", "subclassed_composites"),
            *("subclassed_around_config", "subclassed_lists_apart"),
        )
    },
    ("tf_keras", "subclassed_lists_apart"): "variables",
    ("tf_keras", "emptied"): "argument",
}
"""By library and case, the code of the refusal."""

IN_ARCHIVES: Final = frozenset(
    {
        *((library, name) for library in TARGETS for name in CASES if name.startswith("own_")),
        *(
            (library, name)
            for library in TARGETS
            for name in CASES
            if name.startswith("subclassed")
        ),
        *(("tf_keras", name) for name in mask_models.MODELS),
        ("tf_keras", "concatenated_masks"),
        *(  # no release of Keras 3 reads operations from HDF5
            ("tf_keras", name)
            for name in ("concatenated_with_an_open_one", "sliced", "sliced_with_ellipsis")
        ),
    }
)
"""By library and case, what is written as an archive alone."""

WARNED: Final = {"unsorted_dict": "layer-order", "normalized_in_half": "weights-rounded"}
"""Cases of tf_keras that predict something else, by the code of the warning."""

SAMPLE: Final = sampled("small models", sorted(CASES.keys() - WARNED.keys()), share=LIBRARY_SHARE)
SWAPPED: Final = ("subclassed_of_two", "subclassed_of_two_swapped")


def _compare(libraries: Dialogue, *question: str) -> list[Any]:
    """Return the differences of a converted file, or the errors, with and without compiling."""
    result: list[Any] = libraries.answer(question)
    return result


@pytest.fixture(scope="module")
def libraries(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dialogue]:
    """Yield the libraries, after they saved the models of this run."""
    names = dict.fromkeys((*SAMPLE, *SWAPPED, *WARNED))
    folder = tmp_path_factory.mktemp("cases")
    with dialogue(compat_python, "conversion_models", folder, *names) as found:
        yield found


@pytest.mark.parametrize("library", TARGETS)
@pytest.mark.parametrize("name", SAMPLE)
def test_converted_model_predicts_the_same_or_is_rejected(
    libraries: Dialogue, tmp_path: Path, name: str, library: str
) -> None:
    target, reader = TARGETS[library]
    for source in libraries.saved[name][library]:
        for container in ("keras",) if (library, name) in IN_ARCHIVES else FORMATS:
            output = tmp_path / f"{source.rpartition('.')[2]}.{container}"
            done = policytool.migrate(source, target=target, output=output)
            reasons = [refusal.message for refusal in done.plan.refusals]
            expected = REFUSED.get((library, name))
            if expected is not None:
                codes = {refusal.code for refusal in done.plan.refusals}
                assert expected in codes, (source, container, codes, reasons)
                assert not output.exists()
                continue
            assert done.status is Status.WRITTEN, (source, container, reasons)
            result = _compare(libraries, name, library, reader, str(output))
            assert all(isinstance(item, float) and item <= NEAR for item in result), (
                source,
                result,
            )


def test_keras3_archives_do_not_store_the_attribute_order_of_keras2(libraries: Dialogue) -> None:
    """
    Two classes that set the same attributes in different orders give one archive in Keras 3, except
    for layer names, and two in Keras 2.
    """
    actual = {
        library: [_stored_shapes(*libraries.saved[name][library]) for name in SWAPPED]
        for library in TARGETS
    }
    assert actual["keras"][0] == actual["keras"][1]
    assert actual["tf_keras"][0] != actual["tf_keras"][1]


@pytest.mark.parametrize("name", WARNED)
def test_conversion_with_other_predictions_has_a_warning(
    libraries: Dialogue, tmp_path: Path, name: str
) -> None:
    """The file lacks the information, or the target does not support the behaviour."""
    source = libraries.saved[name]["tf_keras"][0]
    output = tmp_path / "converted.keras"
    done = policytool.migrate(source, target="keras3", output=output)
    assert WARNED[name] in {note.code for note in done.plan.notes}
    result = _compare(libraries, name, "tf_keras", "keras", str(output))
    assert all(isinstance(item, float) and item > NEAR for item in result)


def _stored_shapes(path: str) -> dict[str, tuple[int, ...]]:
    """Return the shapes of an archive's variables by their names."""
    shapes: dict[str, tuple[int, ...]] = {}

    def visit(name: str, found: object) -> None:
        if isinstance(found, h5py.Dataset):
            shapes[name] = found.shape

    with zipfile.ZipFile(path) as archive, archive.open("model.weights.h5") as weights:
        h5py.File(io.BytesIO(weights.read())).visititems(visit)
    return shapes


def test_keras3_does_not_build_an_empty_cropping(compat_python: Path) -> None:
    """Keras 2 returns a tensor without elements for this layer."""
    code = (
        "import keras; keras.layers.Cropping3D(((2, 2), (1, 1), (1, 1)))(keras.Input((4, 4, 4, 2)))"
    )
    command = [str(compat_python), "-c", code]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "should be smaller than the corresponding spatial dimension" in done.stderr
