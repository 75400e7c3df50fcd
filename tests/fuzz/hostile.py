"""
The guard over models with hostile things in them, and over sound ones: ``python -m tests.fuzz
SECONDS hostile``; a few of them are tests.

What was put into a model that the guard has to refuse is refused in one sentence, and ``audit``
names it; a sound model is not refused.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

from policytool.commands import audit as auditing
from policytool.commands.arguments.reading import AuditArguments
from policytool.formats.discovery import Input
from policytool.numerics import check_sides
from policytool.numerics.hand_over import HandOver
from policytool.rules.base import Severity
from policytool.support.errors import ModelFileError
from tests.fuzz import hostile_configs, hostile_graphs, oracle, polyglots, volume
from tests.fuzz.hostile_names import Paths
from tests.helpers import small_models

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.rules.base import Finding
    from tests.fuzz.hostile_configs import Drawn

_VERSIONS: Final = {2: "2.15.0", 3: "3.15.1"}
_QUESTION: Final = auditing.audit_options(AuditArguments(select=("PT6",)))
_NOTE: Final = "PT603"
"""The rule that names plain classes of someone's own, as a note."""


def write(drawn: Drawn, rng: Random, directory: Path) -> Path:
    """Write a config as a model of a format that has it."""
    kind = rng.choice(("h5", "json") if drawn.generation == 2 else ("h5", "json", "keras"))
    path = directory / f"model.{kind}"
    if kind == "json":
        path.write_text(json.dumps(drawn.config), encoding="utf-8")
    elif kind == "h5":
        small_models.h5_model(
            path, drawn.config, weights=False, keras_version=_VERSIONS[drawn.generation]
        )
    else:
        small_models.keras_zip(path, small_models.keras_members(drawn.config))
    return path


def config(rng: Random, directory: Path) -> str:
    """
    Draw a model with a hostile thing in its config, or a sound one; return how the guard met it.
    """
    drawn = hostile_configs.draw(rng, Paths(folder=directory), hostile=rng.random() < 0.75)
    return judged(write(drawn, rng, directory), drawn.hostile)


def graph(rng: Random, directory: Path) -> str:
    """Do the same with a SavedModel."""
    path, hostile = hostile_graphs.write(
        rng, Paths(folder=directory), directory, hostile=rng.random() < 0.75
    )
    return judged(path, hostile)


def polyglot(rng: Random, directory: Path) -> str:
    """Do the same with a file that is two models, or that looks like one."""
    path, hostile = polyglots.write(
        rng, Paths(folder=directory), directory, hostile=rng.random() < 0.75
    )
    return judged(path, hostile)


DRAWN: Final[dict[str, Callable[[Random, Path], str]]] = {
    "configs": config,
    "graphs": graph,
    "polyglots": polyglot,
}


def refusal(path: Path) -> str | None:
    """Return why the guard does not give a model to TensorFlow; None if it does."""
    try:
        with HandOver() as hand_over:
            check_sides.read_source(Input(path=path, exact=True), hand_over)
    except ModelFileError as error:
        return f"{error.code}: {error.message}"
    return None


def judged(path: Path, hostile: str) -> str:
    """
    Return what the guard made of a model.

    :param hostile: what was put into the model; empty for a sound one.
    :raises BrokenError: if it lets a hostile model through, or refuses a sound one, or if ``audit``
        does not name what it refuses.
    """
    message = refusal(path)
    if not hostile:
        if message is not None:
            raise oracle.BrokenError(f"a sound model is refused: {message}")
        return "allowed"
    if message is None:
        raise oracle.BrokenError(f"{hostile} is allowed")
    ended = oracle.command("check", path, "--to", "mixed_bfloat16")
    if message.startswith("runs-code"):
        if ended != "runs-code":
            raise oracle.BrokenError(f"{hostile} is refused, and check ends as {ended}")
        if not any(
            map(_names, auditing.audit_input(Input(path=path, exact=True), _QUESTION).findings)
        ):
            raise oracle.BrokenError(f"{hostile} is no finding of audit: {message}")
    return ended


def _names(finding: Finding) -> bool:
    return finding.severity is not Severity.NOTE or finding.rule == _NOTE


def one(kind: str, seed: int, tally: volume.Tally) -> None:
    """Draw one model and count what became of it; a seed draws the same model each time."""
    began = time.process_time()
    with tempfile.TemporaryDirectory(dir=volume.memory()) as name:
        directory = Path(name).resolve()
        try:
            tally.saw(DRAWN[kind](Random(seed), directory))
        except Exception as error:  # noqa: BLE001  # all of them are what is looked for
            tally.crashes += 1
            volume.keep(
                f"hostile-{kind}",
                _content(directory),
                f"{error}: seed {seed}" if isinstance(error, oracle.BrokenError) else error,
            )
    tally.executions += 1
    tally.slowest = max(tally.slowest, time.process_time() - began)


def _content(directory: Path) -> bytes:
    files: Any = sorted(
        path
        for path in directory.rglob("*")
        if path.is_file()
        and path.name in {"saved_model.pb", "model.h5", "model.json", "model.keras"}
    )
    return files[0].read_bytes() if files else b""


def loop(kind: str, seconds: float) -> volume.Tally:
    """Draw models for so many seconds."""
    tally, began, seed = volume.Tally(), time.time(), time.time_ns() % 2**40
    while time.time() - began < seconds:
        one(kind, seed, tally)
        seed += 1
    tally.seconds = time.time() - began
    return tally
