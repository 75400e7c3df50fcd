"""
The guard over drawn models: hostile ones are refused and named by ``audit``, sound ones are
allowed.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pytest

import policytool
from policytool.releases import symbols
from tests.fuzz import (
    graph_bytes,
    hostile,
    hostile_configs,
    hostile_graphs,
    hostile_names,
    oracle,
    sound_configs,
)
from tests.fuzz.hostile_names import Paths
from tests.helpers.marks import THOROUGH
from tests.helpers.sampling import EVERY_CASE, sampled

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS: Final = sampled("drawn hostile models", range(120), share=4)


@THOROUGH
@pytest.mark.parametrize("kind", hostile.DRAWN)
def test_hostile_models_are_rejected_and_sound_models_accepted(kind: str, tmp_path: Path) -> None:
    """The sample is the same in each run, and ``make fuzz`` draws other models."""
    ended = []
    for seed in SEEDS:
        directory = tmp_path / str(seed)
        directory.mkdir()
        ended.append(hostile.DRAWN[kind](Random(seed), directory))
    assert ended.count("runs-code") + ended.count("ambiguous-format") > len(ended) // 2
    # Of the few of a sample, fewer can be sound.
    assert ended.count("allowed") > (len(ended) // 10 if EVERY_CASE else 0)


@THOROUGH
@pytest.mark.parametrize(
    ("generation", "put"),
    [(generation, put) for generation, puts in hostile_configs.HOSTILE.items() for put in puts],
)
def test_every_hostile_place_of_a_config_is_rejected(
    generation: int, put: Callable[[hostile_configs.Place], None], tmp_path: Path
) -> None:
    """Each place is tested in two of five sound models."""
    for seed in sampled(f"sound models for {put.__name__}", range(5), share=3):
        rng, paths = Random(seed), Paths(folder=tmp_path)
        config = sound_configs.model(rng, generation)
        put(
            hostile_configs.Place(
                rng=rng,
                generation=generation,
                entry=rng.choice(hostile_configs.entries(config)),
                paths=paths,
            )
        )
        drawn = hostile_configs.Drawn(generation=generation, config=config, hostile=put.__name__)
        assert hostile.judged(hostile.write(drawn, rng, tmp_path), drawn.hostile) == "runs-code"


@THOROUGH
@pytest.mark.parametrize("name", [*hostile_names.ops()])
def test_every_op_with_outside_effects_is_rejected(name: str, tmp_path: Path) -> None:
    """The op is in a function that runs when the model is loaded."""
    body = hostile_graphs.Body(Random(1), Paths(folder=tmp_path))
    body.use(body.hostile_text(), name)
    assert (
        hostile.judged(hostile_graphs.saved(tmp_path, [graph_bytes.graph(body.nodes)]), name)
        == "runs-code"
    )


def test_every_class_of_the_releases_is_drawn() -> None:
    """
    Pure classes are in sound models, separately or around others, and excluded classes are in
    hostile models.
    """
    data = json.loads(
        (Path(policytool.__file__).parent / "releases" / "data" / "layer_arguments.json").read_text(
            encoding="utf-8"
        )
    )
    drawn = {
        name for generation in (2, 3) for name in sound_configs.layer_classes(generation)
    } | sound_configs.HOLDERS
    assert {
        name
        for name in data["layers"]
        if symbols.is_pure_class(name) and sound_configs.is_released(name)
    } <= drawn
    left_out = {name for name in data["layers"] if symbols.exclusion_reason(name)}
    assert left_out - {"Lambda"} <= {*hostile_names.classes(), "TFSMLayer", "TorchModuleWrapper"}


def test_accepted_hostile_model_breaks_the_contract(tmp_path: Path) -> None:
    """A rejected sound model also breaks the contract, so the oracle can fail."""
    rng = Random(3)
    sound = hostile_configs.Drawn(
        generation=2, config=sound_configs.model(rng, 2), hostile="nothing"
    )
    with pytest.raises(oracle.BrokenError, match="nothing is allowed"):
        hostile.judged(hostile.write(sound, rng, tmp_path), sound.hostile)
    config = {
        "class_name": "Sequential",
        "config": {"name": "m", "layers": [{"class_name": "Scale", "config": {"name": "scale"}}]},
    }
    with pytest.raises(oracle.BrokenError, match="a sound model is refused"):
        hostile.judged(
            hostile.write(
                hostile_configs.Drawn(generation=2, config=config, hostile=""), rng, tmp_path
            ),
            "",
        )
