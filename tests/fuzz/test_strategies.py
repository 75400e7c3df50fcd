"""
Models that Hypothesis draws, in every format: sound ones are read, and changed ones keep the
contract under every command.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz import drawn, oracle, strategies
from tests.fuzz.targets import TARGETS
from tests.fuzz.volume import Tally, one
from tests.helpers.marks import THOROUGH, examples

_QUICK: Final = settings(
    max_examples=examples(20),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=drawn.UNHURRIED,
)


@THOROUGH
@_QUICK
@given(config=strategies.architectures())
def test_sound_models_are_read(config: Any) -> None:
    """Drawn configs are models, so later changes can break them."""
    with tempfile.TemporaryDirectory() as directory:
        path = strategies.write("json", config, Path(directory), Random(1))
        assert oracle.command("inspect", path, "--format", "json") == "read"


@THOROUGH
@pytest.mark.parametrize("kind", strategies.FORMATS)
@_QUICK
@given(
    pair=strategies.changed(),
    command=drawn.COMMANDS,
    rng=st.randoms(use_true_random=False),
    training=st.none() | strategies.TRAINING,
)
def test_changed_models_keep_the_contract(
    kind: str, pair: tuple[Any, Any], command: tuple[str, ...], rng: Random, training: Any
) -> None:
    assert drawn.ended(kind, pair[1], command, rng, training)


@THOROUGH
@pytest.mark.parametrize("name", [name for name, target in TARGETS.items() if not target.forked])
def test_some_inputs_of_every_target_keep_the_contract(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Each fuzz target accepts the same few inputs on each run, so that a broken target fails before
    hours of fuzzing.
    """
    monkeypatch.chdir(tmp_path)  # which a target may leave
    target, tally = TARGETS[name], Tally()
    rng, seeds = Random(20), target.seeds()
    assert seeds
    for _ in range(12):
        one(target, target.mutate(rng, rng.choice(seeds)), tmp_path, tally)
    assert (tally.executions, tally.crashes, tally.hangs) == (12, 0, 0)
    assert sum(tally.outcomes.values()) == 12
