"""
``check`` runs what a trace of two models at once easily gets wrong.

TensorFlow orders assertions as they were traced; a Sequential without an input shape is put
together within its first call; Keras 3's MultiHeadAttention takes the masks off its inputs, so that
they are gone when the layer is called a second time.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from msgspec.structs import replace

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from tests.compat.asking import run_module
from tests.compat.check_traps import LIBRARIES, MASKED

if TYPE_CHECKING:
    from policytool.numerics.tensorflow_run import TensorFlowTools

pytestmark = pytest.mark.compat

HERE: Final = str(Path(__file__).parent)
MODELS: Final = {
    "asserting": ("asserting/first", "asserting/last", "asserting/dense_5"),
    "masked": (MASKED, "masked/words"),
    "unshaped": ("unshaped/stack",),
}
"""By model, layers that have to be in the report."""


@pytest.fixture(scope="module")
def trapped(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the models."""
    base = tmp_path_factory.mktemp("traps")
    run_module(compat_python, "check_traps", base)
    return base


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("attribute", LIBRARIES)
def test_model_is_measured_and_passes(
    attribute: str, name: str, policy: str, trapped: Path, tools: TensorFlowTools
) -> None:
    """
    The layers of the model are in the report, and each error is within the tolerance of its dtype.
    """
    (path,) = (path for path in (trapped / LIBRARIES[attribute]).iterdir() if path.stem == name)
    own = (
        replace(tools, custom_objects=(f"check_traps:{attribute}",), path=(HERE,))
        if name == "unshaped"
        else tools
    )
    check = checks.check(
        discovery.named_input(str(path)),
        None,
        CheckOptions(candidate=Options(to=policy), isolated=True),
        own,
    )
    (run,) = check.runs
    assert check.holds, run.verdict.missed
    assert {note.code for note in check.notes} <= {"every-layer"}
    assert {call.path for call in run.calls} >= set(MODELS[name])
    assert not run.unmatched
