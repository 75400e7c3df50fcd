"""
The work on a file grows in proportion to its content, whatever its shape.

Each shape is built at n, 2n and 4n. From 2n to 4n, steps and calls of functions may grow by at most
:data:`_LINEAR` times what they grow from n to 2n, which is 2 if they are proportional to n and 4 if
they are proportional to its square. Calls of functions also count walks that spend no steps.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Final

import pytest

from policytool.cli.exit_codes import Exit
from policytool.support import limits
from tests.conftest import run
from tests.growth.counting import COMMANDS, budgets, peak_bytes, work
from tests.growth.shapes import CONTAINERS, SHAPES, Container, Keras2, Shape
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.sampling import sampled

if TYPE_CHECKING:
    from pathlib import Path

_LINEAR: Final = 2.5
"""n log n grows by 2.2 at these sizes."""

_DEEP: Final = 5.0
"""
The names and the address of an object have those of all above it. Limits of depth bound the square.
"""

_NOISE: Final = 2_000
"""Calls, such as those of regular expressions that are compiled when they are first used."""

FAST: Final = (
    ("masked diamonds", "keras2.json", "migrate to keras3"),
    ("masked diamonds", "keras3.json", "migrate to tf_keras"),
    ("masked models", "keras2.json", "migrate to keras3"),
    ("nest", "keras2.json", "inspect"),
    ("nest", "keras3.json", "audit"),
    ("models", "keras3.json", "migrate to tf_keras"),
    ("sequential models", "keras2.json", "audit"),
    ("chain", "keras3.json", "migrate to tf_keras"),
    ("long key", "keras2.json", "html"),
    ("reversed chain", "keras2.json", "migrate to keras3"),
    ("diamonds", "keras2.json", "diff"),
)
"""Each was quadratic or exponential, or stands for a command."""


def _assert_grows_linearly(shape: Shape, container: Container, command: str, path: Path) -> None:
    files = []
    for size in shape.sizes:
        file = path / f"{size}{container.suffix}"
        files.append(container.write(file, shape.make(container.library, size)))
    run(*COMMANDS[command], *files[:1], *(files[:1] if command == "diff" else ()))  # imports
    small, middle, large = (work(command, file) for file in files)
    most = _DEEP if shape.is_deep else _LINEAR
    for what in ("steps", "calls"):
        first, second, third = (getattr(item, what) for item in (small, middle, large))
        if shape.limit is None:
            assert third - second <= most * max(second - first, _NOISE), (
                what,
                (first, second, third),
                large.by_function.most_common(5),
            )
    # A refusal is the result of a whole plan: models without weights cannot be converted.
    results = {Exit.CLEAN, Exit.FINDINGS, *([Exit.FAILURE] if "migrate" in command else ())}
    for item in (small, middle, large):
        assert item.code in results or (
            shape.limit is not None and f" {shape.limit} limit of" in item.errors
        ), item.errors


def _named(shape: str, container: str) -> tuple[Shape, Container]:
    return (
        next(item for item in SHAPES if item.name == shape),
        next(item for item in CONTAINERS if item.name == container),
    )


@THOROUGH
@pytest.mark.parametrize(
    ("shape", "container", "command"), sampled("known growth of configs", FAST, share=3)
)
def test_work_grows_with_the_content(
    shape: str, container: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test covers a sample of the shapes that once grew faster."""
    monkeypatch.chdir(tmp_path)
    _assert_grows_linearly(*_named(shape, container), command, tmp_path)


@SLOW
@pytest.mark.parametrize(
    ("shape", "container", "command"),
    sampled("growth of configs", itertools.product(SHAPES, CONTAINERS, COMMANDS), share=4),
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_work_grows_with_the_content_of_every_shape(
    shape: Shape,
    container: Container,
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test covers a sample of the formats and commands."""
    monkeypatch.chdir(tmp_path)
    _assert_grows_linearly(shape, container, command, tmp_path)


@THOROUGH
def test_nested_models_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """13 kB of 40 models in each other took 2 ** 40 rounds."""
    monkeypatch.chdir(tmp_path)
    shape, container = _named("nest", "keras2.json")
    path = container.write(tmp_path / "nest.json", shape.make(container.library, 40))
    done = work("inspect", path)
    assert done.code == Exit.CLEAN, done.errors
    assert done.calls < 3_000_000


@ALONE
@THOROUGH
@pytest.mark.parametrize("above", ["objects", "names of code", "dtypes", "shared objects"])
def test_long_keys_need_no_memory_for_each_object_below(
    above: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pointer to each of 150,000 objects below a key of 500 kB took 75 GB."""
    monkeypatch.chdir(tmp_path)
    count = 2_000
    below = {
        "objects": [{} for _ in range(count)],
        "names of code": [
            {"class_name": f"Custom{number}", "config": {}} for number in range(count)
        ],
        "dtypes": [{"dtype": "mixed_float16"} for _ in range(count)],
        "shared objects": [
            {"class_name": "A", "config": {"a": number}, "shared_object_id": number // 2}
            for number in range(count)
        ],
    }[above]
    model = SHAPES[0].make(Keras2(), 2)
    model["k" * 100_000] = below
    path = tmp_path / "model.json"
    path.write_text(json.dumps(model), encoding="utf-8")
    with limits.override({"file-steps": 2_000_000}):
        assert peak_bytes("audit", path) < 100 * 2**20


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_one_budget_for_each_file(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spending without a budget fails in the test, and reading opens one for itself alone."""
    monkeypatch.chdir(tmp_path)
    shape, container = _named("models", "keras2.json")
    path = container.write(tmp_path / "model.json", shape.make(container.library, 8))
    arguments = (*COMMANDS[command], path, *([path] if command == "diff" else ()))
    with budgets() as opened:
        assert run(*arguments).code in {Exit.CLEAN, Exit.FINDINGS}
    assert opened
    assert all(budget.path == str(path.name) or budget.path == str(path) for budget in opened)


@pytest.mark.parametrize("command", COMMANDS)
def test_steps_above_the_limit_are_reported(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The failure of the file, or of the conversion that an audit plans, names the limit and how to
    raise it.
    """
    monkeypatch.chdir(tmp_path)
    shape, container = _named("models", "keras2.json")
    path = container.write(tmp_path / "model.json", shape.make(container.library, 8))
    arguments = (*COMMANDS[command], path, *([path] if command == "diff" else ()))
    with budgets() as opened:
        run(*arguments)
    spent = opened[0].spent
    ended = run(*arguments, "--limit", f"file-steps={spent - 1}")
    assert ended.code == (Exit.FINDINGS if command in {"audit", "html"} else Exit.FAILURE)
    assert f"above the file-steps limit of {spent - 1}" in " ".join((ended.err + ended.out).split())
