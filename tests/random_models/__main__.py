"""
Build random models, convert them to the other library, and print what comes of them.

    python -m tests.random_models [-n NUMBER] [--seed SEED] [--library LIBRARY] [--show] [--shrink]
    python -m tests.random_models --record fixtures/random_models.json [--again]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.helpers.paths import ROOT
from tests.random_models import records, report
from tests.random_models.campaign import TARGETS, run_campaign
from tests.random_models.description import Recipe, from_json, short_form
from tests.random_models.outcomes import BAD, Outcome
from tests.random_models.recipes import LIBRARIES, recipe_from_seed
from tests.random_models.shrink import shrink

if TYPE_CHECKING:
    from collections.abc import Sequence

_BATCH = 100


def main() -> int:
    """Run the command line; return 1 if a conversion is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("-n", type=int, default=100, help="models for each library")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--library", choices=LIBRARIES, action="append")
    parser.add_argument("--show", action="store_true", help="print the description of --seed, too")
    parser.add_argument(
        "--shrink", action="store_true", help="print the smallest models that fail alike, too"
    )
    parser.add_argument("--recipe", type=Path, help="a file with a description, in place of seeds")
    parser.add_argument("--keep", type=Path, help="a folder for the models, which stay there")
    parser.add_argument("--record", type=Path, help="a file that the outcomes are written into")
    parser.add_argument(
        "--again", action="store_true", help="run what is not the same in the record once more"
    )
    given = parser.parse_args()
    python = Path(
        os.environ.get("POLICYTOOL_COMPAT", ROOT / ".venv" / "compat" / "bin" / "python")
    ).absolute()
    wrong = False
    if given.recipe:
        return _run_recipe(from_json(given.recipe.read_text(encoding="utf-8")), python)
    for library in given.library or LIBRARIES:
        if given.show:
            print(json.dumps(short_form(recipe_from_seed(given.seed, library)), indent=1))
        if given.record and given.again:
            old = [item.seed for item in records.others(given.record, library)]
            outcomes = _outcomes(given, library, python, old)
            records.replace(given.record, library, outcomes)
        else:
            seeds = range(given.seed, given.seed + (1 if given.show else given.n))
            outcomes = _outcomes(given, library, python, seeds)
        print("\n".join(report.lines(library, TARGETS[library], outcomes)), flush=True)
        failing = [outcome for outcome in outcomes if outcome.word.partition(":")[0] in BAD]
        wrong |= bool(failing)
        if given.shrink and failing:
            _print_smallest(report.representatives(failing), library, python)
    return int(wrong)


def _run_recipe(recipe: Recipe, python: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="random-models-") as folder:
        outcomes = run_campaign([recipe], python, Path(folder).resolve())
    print("\n".join(report.lines(recipe.library, TARGETS[recipe.library], outcomes)))
    return int(outcomes[0].word.partition(":")[0] in BAD)


def _print_smallest(failing: list[Outcome], library: str, python: Path) -> None:
    pairs = [(recipe_from_seed(item.seed, library), item.word) for item in failing]
    for one, (recipe, outcome) in zip(failing, shrink(pairs, python), strict=True):
        print(f"{one.seed} {one.word}: {outcome.reason[:300]}")
        print(json.dumps(short_form(recipe)), flush=True)


def _outcomes(
    given: argparse.Namespace, library: str, python: Path, seeds: Sequence[int]
) -> list[Outcome]:
    found: list[Outcome] = []
    for start in range(0, len(seeds), _BATCH):
        began = time.monotonic()
        batch = [recipe_from_seed(seed, library) for seed in seeds[start : start + _BATCH]]
        folder = Path(tempfile.mkdtemp(prefix="random-models-")).resolve()
        try:
            found += run_campaign(batch, python, given.keep / library if given.keep else folder)
        finally:
            shutil.rmtree(folder)
        if given.record and not given.again:
            records.write(given.record, library, found)
        print(
            f"{library}: {len(found)} of {len(seeds)}, {time.monotonic() - began:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    return found


if __name__ == "__main__":
    sys.exit(main())
