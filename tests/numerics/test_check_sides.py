"""The two sides of a check, before TensorFlow is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.commands import check
from policytool.commands.check_options import CheckOptions
from policytool.migration.planning.options import Options
from policytool.model import tree
from policytool.numerics.workers import Worker
from policytool.support.errors import WorkerError
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Mapping

FLOAT32: Final = str(FIXTURES / "tf2.15/default_float32.h5")
FLOAT64: Final = str(FIXTURES / "tf2.15/floatx_float64.h5")
MIXED: Final = str(FIXTURES / "tf2.15/global_mixed_float16.h5")
SAVED: Final = str(FIXTURES / "tf2.15/global_mixed_float16")
BFLOAT16: Final = Options(to="mixed_bfloat16")


@pytest.mark.parametrize(
    ("model", "other", "wanted", "count"),
    [
        (FLOAT32, None, {"candidate": BFLOAT16}, 2),
        (FLOAT32, FLOAT64, {}, 2),
        (FLOAT32, FLOAT64, {"candidate": BFLOAT16}, 3),
        (MIXED, None, {"candidate": BFLOAT16}, 3),
        (SAVED, None, {"candidate": BFLOAT16}, 3),
    ],
)
def test_a_model_is_analysed_once_per_file_and_changed_side(
    model: str,
    other: str | None,
    wanted: dict[str, Any],
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A side whose policies stay as they are in the file needs no analysis besides the file's."""
    analysed = []
    build = tree.build

    def counted(document: Any, origin: Any) -> Any:
        analysed.append(document.path)
        return build(document, origin)

    def ended(_worker: Worker, _job: Mapping[str, Any], **_: Any) -> Mapping[str, Any]:
        raise WorkerError("ended", "the child is not asked here")

    monkeypatch.setattr(tree, "build", counted)
    monkeypatch.setattr(Worker, "run", ended)
    with pytest.raises(WorkerError, match="not asked"):
        check.check_files(model, other, CheckOptions(**wanted))
    assert len(analysed) == count
