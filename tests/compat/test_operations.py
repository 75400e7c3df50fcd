"""
Every op that is converted computes the same in the other library: models of one op each, built,
converted and compared.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from policytool.formats import format_detection
from policytool.migration.convert import conversion_plan, decoding, encoding
from policytool.migration.convert.rewrites import ConversionContext
from policytool.migration.convert.target import Log, Target
from policytool.model import reading
from tests.compat.asking import run_script
from tests.compat.conftest import COMPAT
from tests.helpers.sampling import EVERY_CASE, sampled

if TYPE_CHECKING:
    from collections.abc import Mapping

SHARE: Final = 3
PROGRAM: Final = Path(__file__).with_name("op_models.py")
TARGETS: Final = {"keras2": "keras3.15", "keras3": "tf_keras2.21"}

REFUSED: Final = frozenset(
    {
        *("keras2-cumsum_i32", "keras2-div_i32", "keras2-mean_i32", "keras2-sum_i32"),
        *(
            "keras3-cumsum_i32",
            "keras3-divide_i32",
            "keras3-exp_i32",
            "keras3-mean_i32",
            "keras3-power_i32",
            "keras3-rdivide_i32",
        ),
        *(
            "keras3-rpower_i32",
            "keras3-sum_i32",
            "keras3-erfinv_f16",
            "keras3-erfinv_f32",
            "keras2-erfinv_f32",
            "keras2-einsum",
            "keras3-einsum_9",
            "keras3-einsum_mixed",
            "keras3-sparsemax_f16",
            "keras3-sparsemax_f32",
            "keras3-resize_crop",
        ),
        *(
            f"keras3-{word}_{kind}"
            for word in ("rdivide", "rpower", "where_front")
            for kind in ("f16", "bf16", "f64")
        ),
    }
)
"""
Ops of integers that the libraries compute otherwise, numbers in front of tensors that Keras 2 does
not read back, an einsum of Keras 2, whose tensors are not in the file, and one that is no product
of matrices.
"""

pytestmark = pytest.mark.compat


def _run(word: str, folder: Path) -> None:
    assert COMPAT is not None
    run_script(COMPAT, PROGRAM, word, folder)


def _converted(path: Path) -> str | None:
    """Return a case for the other library; None where it is refused."""
    log = Log()
    target = Target(loader=TARGETS[path.stem.partition("-")[0]], container="json")
    loaded = reading.load_model(format_detection.document(path, str(path)))
    root = conversion_plan.rewrite_model(
        decoding.decode(loaded), ConversionContext(loaded=loaded, target=target, log=log)
    )
    text = json.dumps(encoding.encode(root, target, log))
    return None if log.refusals else text


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str | None]:
    """
    Return what the other library said of each case of a sample: nothing where it computes the
    same, None where the case was refused.
    """
    folder = tmp_path_factory.mktemp("ops")
    _run("write", folder)
    found: dict[str, str | None] = {}
    for path in sampled("converted ops", sorted(folder.glob("keras*.json")), share=SHARE):
        text = _converted(path)
        found[path.stem] = None
        if text is not None:
            path.with_suffix(".made").write_text(text, encoding="utf-8")
    _run("read", folder)
    compared: dict[str, str | None] = json.loads(
        (folder / "found.json").read_text(encoding="utf-8")
    )
    return found | compared


def test_converted_ops_compute_the_same(answers: Mapping[str, str | None]) -> None:
    """Dtypes, shapes and values are equal, both ways."""
    assert {name: text for name, text in answers.items() if text} == {}
    counted = Counter(name.partition("-")[0] for name, text in answers.items() if text == "")
    least = 150 if EVERY_CASE else 150 // (2 * SHARE)  # most of what is written
    assert min(counted["keras2"], counted["keras3"]) > least


def test_rejected_operations_are_known(answers: Mapping[str, str | None]) -> None:
    """Only operations with other results in the libraries are rejected."""
    known = REFUSED if EVERY_CASE else REFUSED & answers.keys()
    assert {name for name, text in answers.items() if text is None} == known
