"""
What inspect says that saved graphs compute in equals what TensorFlow says of the same functions, op
by op.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.formats import format_detection
from policytool.model import reading
from tests.compat.asking import run_script
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from policytool.model.model import Model

pytestmark = pytest.mark.compat

CHILD: Final = Path(__file__).with_name("graphs.py")
SAVED_MODELS: Final = tuple(sorted(path.parent for path in FIXTURES.glob("*/*/saved_model.pb")))
Answer = dict[str, list[tuple[str, str, list[str], int]]]


@cache
def models() -> dict[Path, Model]:
    """Return the reports of all SavedModels."""
    return {path: reading.read(path, str(path)) for path in SAVED_MODELS}


@pytest.fixture(scope="module")
def answers(compat_python: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Return what TensorFlow says of all of them."""
    scratch = tmp_path_factory.mktemp("graphs")
    jobs, results = scratch / "jobs.json", scratch / "results.json"
    jobs.write_text(json.dumps([str(path) for path in SAVED_MODELS]), encoding="utf-8")
    run_script(compat_python, CHILD, jobs, results)
    result: dict[str, Answer] = json.loads(results.read_text(encoding="utf-8"))
    return result


def _ids(path: Path) -> str:
    return path.relative_to(FIXTURES).as_posix()


def _said(path: Path) -> dict[str, Counter[tuple[str, str, tuple[str, ...]]]]:
    """Return what the file's own traces say, in the form of the answer."""
    said = {}
    for trace in format_detection.document(path, str(path)).traces:
        ops: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
        for op, count in trace.ops:
            ops["/".join(op.scope), op.op, op.dtypes] += count
        said[trace.entry] = ops
    return said


@pytest.mark.parametrize("path", SAVED_MODELS, ids=_ids)
def test_every_op_has_the_dtypes_of_tensorflow(path: Path, answers: dict[str, Answer]) -> None:
    """Scope, op, float dtypes and count agree for every op that a signature runs."""
    result = _said(path)
    for signature, rows in answers[str(path)].items():
        expected = Counter({(scope, op, tuple(dtypes)): count for scope, op, dtypes, count in rows})
        assert result.get(signature, Counter()) == expected


@pytest.mark.parametrize("path", SAVED_MODELS, ids=_ids)
def test_layers_have_the_dtypes_of_the_ops_in_their_scope(
    path: Path, answers: dict[str, Answer]
) -> None:
    rows: list[Any] = [row for signature in answers[str(path)].values() for row in signature]
    scopes = {scope for scope, *_ in rows}
    for layer in models()[path].layers:
        below = [
            set(dtypes) for scope, _, dtypes, _ in rows if f"{scope}/".startswith(f"{layer.path}/")
        ]
        if layer.class_name is not None and layer.path in scopes:
            assert set(layer.traced_dtypes) == set().union(*below), layer.path


def test_most_fixtures_hold_a_graph(answers: dict[str, Answer]) -> None:
    """The tests above compare something."""
    assert sum(1 for answer in answers.values() if any(answer.values())) >= len(SAVED_MODELS) // 3
