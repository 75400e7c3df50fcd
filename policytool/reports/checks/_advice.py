"""What to do about a check that failed: the layers that stay in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.reports.figures import many

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import Check
    from policytool.reports.checks._base import Checks

_FLOAT32: Final = "float32"
_END: Final = "--"
"""After it a command line has no options."""


def command(found: Checks) -> tuple[str, ...]:
    """Return the command line of a check that passes: the same with more layers in float32."""
    check = found.check
    if check is None or check.advice is None or not check.advice.layers:
        return ()
    given = found.arguments or _arguments(check)
    end = given.index(_END) if _END in given else len(given)
    added = [word for path in check.advice.layers for word in ("--set", f"{path}={_FLOAT32}")]
    return ("policytool", *given[:end], *added, *given[end:])


def _arguments(check: Check) -> tuple[str, ...]:
    policy = check.candidate.policy
    return ("check", check.candidate.path, *(("--to", policy) if policy is not None else ()))


def advice(check: Check) -> Iterator[str]:
    """Yield what the trials of a failed check found."""
    found = check.advice
    if found is None:
        return
    trials = many(found.trials, "trial run")
    if found.layers:
        yield (
            f"with {many(len(found.layers), 'more layer')} in float32, the check passes (found and "
            f"verified in {trials}); migrate accepts the same --set options"
        )
    elif found.exhausted:
        yield f"found no set of float32 layers that makes the check pass in {trials}"
    else:
        yield "the check fails even with all layers of the file in float32"
