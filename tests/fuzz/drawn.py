"""
Models that Hypothesis draws and changes, under every command: ``python -m tests.fuzz SECONDS
drawn``; a few of them are tests.

What fails is shrunk, and lies in ``build/fuzz/drawn-FORMAT`` as the sentence that Hypothesis says
of it.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from policytool.migration.planning.options import RETARGETS
from policytool.releases.releases import LOADERS
from tests.conftest import MIXED_JSON
from tests.fuzz import oracle, strategies, volume

if TYPE_CHECKING:
    from random import Random

UNHURRIED: Final = (
    HealthCheck.too_slow,
    HealthCheck.data_too_large,
    HealthCheck.filter_too_much,
    HealthCheck.large_base_example,
)

COMMANDS: Final = st.one_of(
    st.builds(
        lambda name: ("inspect", "--format", name),
        st.sampled_from(("table", "markdown", "csv", "json")),
    ),
    st.builds(
        lambda name, loader: ("audit", "--format", name, "--target", loader),
        st.sampled_from(("table", "json", "sarif")),
        st.sampled_from(LOADERS),
    ),
    st.builds(lambda to: ("migrate", "--preview", "--to", to), st.sampled_from(sorted(RETARGETS))),
    st.builds(
        lambda loader: ("migrate", "--preview", "--target", loader), st.sampled_from(LOADERS)
    ),
    st.just(("diff", str(MIXED_JSON))),
)
_EXAMPLES: Final = 200


def ended(kind: str, config: Any, command: tuple[str, ...], rng: Random, training: Any) -> str:
    """
    Return how a command ended over a model of a format.

    :raises BrokenError: where it did not keep the contract.
    """
    with tempfile.TemporaryDirectory(dir=volume.memory()) as directory:
        return oracle.command(
            *command, strategies.write(kind, config, Path(directory), rng, training)
        )


def loop(kind: str, seconds: float) -> volume.Tally:
    """Draw models of a format for so many seconds."""
    tally, began = volume.Tally(), time.time()

    @settings(max_examples=_EXAMPLES, deadline=None, database=None, suppress_health_check=UNHURRIED)
    @given(
        pair=strategies.changed(),
        command=COMMANDS,
        rng=st.randoms(use_true_random=False),
        training=st.none() | strategies.TRAINING,
    )
    def run(pair: tuple[Any, Any], command: tuple[str, ...], rng: Random, training: Any) -> None:
        start = time.process_time()
        tally.executions += 1
        tally.saw(ended(kind, pair[1], command, rng, training))
        tally.slowest = max(tally.slowest, time.process_time() - start)

    while time.time() - began < seconds:
        try:
            seed(time.time_ns())(run)()
        except Exception as error:  # noqa: BLE001  # all of them are what is looked for
            tally.crashes += 1
            volume.keep(f"drawn-{kind}", b"", error)
    tally.seconds = time.time() - began
    return tally
