"""What to do after a check: the command that writes its candidate, and what trials found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytool.reports.figures import many
from policytool.reports.migrate_command import migrate_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import Check


def command(check: Check) -> tuple[str, ...]:
    """
    Return the command that writes the candidate, with the layers to keep if it is not safe without;
    nothing if there is none.
    """
    if check.migration is None:
        return ()
    return migrate_command(check.candidate.path, check.migration)


def unfit_sentence(check: Check) -> str:
    """
    Return that the policy does not suit the model, and which policy does; empty if it suits it.
    """
    search = check.advice
    if search is None or not search.is_unfit:
        return ""
    if search.layers:
        kept = (
            f"in the smallest set found, {len(search.layers):,} of {many(search.choices, 'layer')} "
            f"{'stays' if len(search.layers) == 1 else 'stay'} in float32"
        )
    else:
        kept = f"no set of float32 layers {'was found' if search.exhausted else 'is enough'}"
    suits = f"; {search.policy} does" if search.policy is not None else ""
    policy = check.candidate.policy or "the policy"
    return f"{policy} does not suit this model ({kept}){suits}"


def advice(check: Check) -> Iterator[str]:
    """Yield the results of the trials that followed a failed check."""
    search = check.advice
    if search is None:
        return
    trials = many(search.trials, "trial run")
    if search.layers:
        yield (
            f"with {many(len(search.layers), 'more layer')} in float32, the check no longer fails "
            f"(found and verified in {trials})"
        )
    elif search.exhausted:
        yield f"found no set of float32 layers that prevents the failure in {trials}"
    else:
        yield "the check fails even with all layers of the file in float32"
    if search.policy is not None:
        yield f"with {search.policy} instead, the check does not fail (verified)"
