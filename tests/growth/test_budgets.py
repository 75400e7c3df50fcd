"""Every way to process a file opens the budget of the file before it is read."""

from __future__ import annotations

import importlib
import itertools
import json
import pkgutil
from contextlib import contextmanager, suppress
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool import api, commands
from policytool.cli.exit_codes import Exit
from policytool.commands.batch.task import Task
from policytool.commands.destinations import Destination
from policytool.commands.fix import FixOptions, FixRequest
from policytool.commands.inspect import Failure
from policytool.commands.migrate import MigrateRequest, Migration
from policytool.commands.migrate import attempt as migrate_input
from policytool.commands.saved_plans import SavedPlan, SavedPlanRequest
from policytool.commands.summary import SummaryRequest
from policytool.formats import discovery, format_detection
from policytool.migration.planning.options import options_from_arguments
from policytool.model import reading
from policytool.rules import AuditOptions
from policytool.rules.selection.suppressions import Suppressions
from policytool.support import steps
from policytool.support.errors import PolicytoolError
from tests.conftest import run
from tests.growth.counting import budgets
from tests.growth.shapes import CONTAINERS, SHAPES, Keras2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from policytool.migration.plan import Plan

_MIGRATION: Final = MigrateRequest(
    options=options_from_arguments("mixed_float16", {}), destination=Destination(write=False)
)
_SUPPRESSIONS: Final = Suppressions(directory="/", today=date(2026, 1, 1))
_READING: Final = (
    (format_detection, "document"),
    (reading, "load_model"),
    (reading, "model_of"),
)
"""Everything that reads or places the content of a file begins in one of these functions."""


def _plan(path: Path) -> Plan:
    done = migrate_input(discovery.named_input(str(path)), _MIGRATION)
    assert isinstance(done, Migration)
    return done.plan


REQUESTS: Final[dict[str, Callable[[Path], tuple[Any, Any]]]] = {
    "inspect": lambda path: (discovery.named_input(str(path)), None),
    "suggested_conversion": lambda path: (discovery.named_input(str(path)), None),
    "summary": lambda path: (discovery.named_input(str(path)), SummaryRequest()),
    "audit": lambda path: (discovery.named_input(str(path)), AuditOptions()),
    "fix": lambda path: (
        discovery.named_input(str(path)),
        FixRequest(
            options=FixOptions(write=False),
            audit_options=AuditOptions(),
            suppressions=_SUPPRESSIONS,
        ),
    ),
    "remote_migration": lambda path: (discovery.named_input(str(path)), _MIGRATION),
    "saved_plans": lambda path: (
        SavedPlan(plan=_plan(path), path=path),
        SavedPlanRequest(destination=Destination(write=False)),
    ),
}
"""By the module of a task, a file and what is asked about it."""

FUNCTIONS: Final[dict[str, Callable[[Path], object]]] = {
    "inspect": policytool.inspect,
    "audit": policytool.audit,
    "migrate": lambda path: policytool.migrate(path, to="mixed_float16", preview=True),
    "load": policytool.load,
    "diff": lambda path: policytool.diff(path, path),
    "check": lambda path: policytool.check(path, to="mixed_float16", python="/nonexistent"),
    "tune": lambda path: policytool.tune(path, to="mixed_float16", python="/nonexistent"),
}
"""By its name, a call of each public function that reads a model."""

_READS_NOTHING: Final = frozenset({"explain"})


def _tasks() -> dict[str, Task[Any, Any, Any]]:
    names = [
        item.name for item in pkgutil.walk_packages(commands.__path__, f"{commands.__name__}.")
    ]
    result = (getattr(importlib.import_module(name), "TASK", None) for name in names)
    return {item.module.rpartition(".")[2]: item for item in result if isinstance(item, Task)}


@contextmanager
def _watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect what is read, and fail if it is read, or steps are spent, without a budget."""
    reads: list[str] = []

    def watch(module: object, name: str) -> None:
        inner = getattr(module, name)

        def call(*args: object, **kwargs: object) -> object:
            assert steps._CURRENT.get(None) is not None, name  # noqa: SLF001  # what is watched
            reads.append(name)
            return inner(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    with budgets():
        for module, name in _READING:
            watch(module, name)
        yield reads


def _model(directory: Path, container: str) -> Path:
    shape = next(shape for shape in SHAPES if shape.name == "models")
    kind = next(item for item in CONTAINERS if item.name == container)
    return kind.write(directory / f"model{kind.suffix}", shape.make(kind.library, 8))


def test_all_tasks_and_functions_are_known() -> None:
    """A new command or public function needs an example."""
    assert REQUESTS.keys() == _tasks().keys()
    assert FUNCTIONS.keys() | _READS_NOTHING == set(api.__all__)


@pytest.mark.parametrize("name", REQUESTS)
def test_tasks_open_a_budget(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading opens a budget for itself, which would end before the content is processed."""
    item, request = REQUESTS[name](_model(tmp_path, "keras2.json"))
    with _watched(monkeypatch) as reads:
        done = _tasks()[name].attempt(item, request)
    assert not isinstance(done, Failure), done
    assert "document" in reads


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_open_a_budget(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Functions that later need TensorFlow, which this interpreter lacks, also open a budget."""
    path = _model(tmp_path, "keras2.h5")
    with _watched(monkeypatch) as reads, suppress(PolicytoolError):
        FUNCTIONS[name](path)
    assert "document" in reads


@pytest.mark.parametrize("limit", ["layer-calls", "file-steps"])
def test_inspect_shows_a_model_whose_conversion_exceeds_a_limit(limit: str, tmp_path: Path) -> None:
    """Each level doubles the calls of the conversion, and adds one layer to the table."""
    shape = next(shape for shape in SHAPES if shape.name == "nest called twice")
    kind = next(container for container in CONTAINERS if container.name == "keras2.json")
    path = kind.write(tmp_path / "model.json", shape.make(kind.library, 8))
    with budgets() as opened:
        run("inspect", path)
    most = {"layer-calls": 2**8, "file-steps": opened[0].spent}[limit]  # enough to read the file
    ended = run("inspect", path, "--limit", f"{limit}={most}")
    assert ended.code == Exit.CLEAN, ended.err
    text = " ".join(ended.out.split())
    assert "InputLayer" in text
    assert "the conversion to Keras 3 was not planned: " in text
    assert f"above the {limit} limit of {most}" in text


def test_chains_of_layers_without_casts_are_widened_in_one_round(tmp_path: Path) -> None:
    """A round for each layer took 3.7 s for 1,000 layers."""
    write = Keras2()
    spent = []
    for count in (20, 40, 80):
        names = ["x", *(f"t{number}" for number in range(count))]
        layers = [
            write.layer("Custom", name, [(before, 0)], autocast=False)
            for before, name in itertools.pairwise(names)
        ]
        path = tmp_path / f"{count}.json"
        path.write_text(json.dumps(write.root(write.input(), *layers)), encoding="utf-8")
        options = ("--to", "mixed_float16", "--set", f".*{names[-1]}=float32")
        with budgets() as opened:
            ended = run("migrate", path, *options, "--preview")
        assert ended.code == Exit.CLEAN, ended.err
        assert "does not cast its inputs" in " ".join(ended.out.split())
        spent.append(sum(item.counts["dtypes"] for item in opened))
    assert spent[2] - spent[1] <= 2.5 * (spent[1] - spent[0]), spent
