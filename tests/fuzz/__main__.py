"""
Fuzzes everything for a time and adds the run to the record: ``python -m tests.fuzz SECONDS
[KIND[:TARGET]]...``.

Without kinds, each has the same part of the time; ``loaded`` needs the interpreter with TensorFlow,
which ``POLICYTOOL_COMPAT`` names. Inputs that broke the contract lie in ``build/fuzz``.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Final

from tests.conftest import COMPAT
from tests.fuzz import drawn, hostile, loading, processes, record, strategies, volume
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.fuzz.processes import Runs
    from tests.fuzz.volume import Tally

_PART: Final = 60
"""Seconds after which a long run of a target is recorded and goes on."""


def _changed(name: str, seconds: float) -> Tally:
    return volume.loop(name, seconds, time.time_ns() % 2**40)


def _whole(seconds: float, *, copied: bool) -> Runs:
    return processes.loop(seconds, time.time_ns() % 2**40, copied=copied)


def _jobs(asked: Sequence[str]) -> list[tuple[str, str, Callable[[float], Tally | Runs]]]:
    """Return what is to be run: kind, target, and what runs it for some seconds."""
    found: list[tuple[str, str, Callable[[float], Tally | Runs]]] = [
        ("changed", name, partial(_changed, name)) for name in TARGETS
    ]
    found += [("drawn", kind, partial(drawn.loop, kind)) for kind in strategies.FORMATS]
    found += [("hostile", kind, partial(hostile.loop, kind)) for kind in hostile.DRAWN]
    found += [("loaded", "all", loading.loop)] if COMPAT is not None else []
    found += [
        ("process", "all", partial(_whole, copied=False)),
        ("copied", "all", partial(_whole, copied=True)),
    ]
    return [job for job in found if not asked or {job[0], f"{job[0]}:{job[1]}"} & set(asked)]


def main(arguments: Sequence[str]) -> int:
    """Run everything that is asked for; return 1 where something broke the contract."""
    seconds, asked = float(arguments[0]), arguments[1:]
    jobs = _jobs(asked)
    kinds = {kind: sum(job[0] == kind for job in jobs) for kind, _, _ in jobs}
    found = 0
    for kind, target, run in jobs:
        left = seconds / len(kinds) / kinds[kind]
        while left > 0:
            tally = run(min(left, _PART))
            left -= _PART
            record.add([record.row(kind, target, tally)])
            found += tally.crashes + tally.hangs
            print(
                f"{kind} {target}: {tally.executions} executions, {tally.crashes} crashes, "
                f"{tally.hangs} hangs",
                flush=True,
            )
    print(
        f"inputs that broke the contract: {volume.FOUND}" if found else "nothing broke the contract"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
