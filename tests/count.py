"""
Count the test cases that each target of the Makefile runs, and those of all together:
``python -m tests.count TARGET=MARKS ...``. A test that calls itself for each of many cases counts
as so many.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections import Counter
from typing import Final

import pytest

from tests.helpers.cases import CASES

LEAST: Final = 14_900
"""As many as all targets ran when this was last raised; it falls only with what is tested."""

_TOGETHER: Final = "all together"


class _Counting:
    """Counts what pytest collects; nothing is run."""

    def __init__(self, targets: dict[str, str]) -> None:
        self.targets = targets
        self.counts: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Count every test for the targets whose marks it has."""
        for item in items:
            marks = _Marks(dict.fromkeys((mark.name for mark in item.iter_markers()), True))
            chosen = [
                target
                for target, wanted in self.targets.items()
                if eval(wanted, {}, marks)  # noqa: S307  # the Makefile's own words
            ]
            cases = getattr(getattr(item, "function", None), CASES, 1)
            if chosen:
                self.counts.update(dict.fromkeys((*chosen, _TOGETHER), cases))


class _Marks(dict[str, bool]):
    """The marks of a test; it has none of the others."""

    def __missing__(self, name: str) -> bool:
        return False


def main() -> int:
    """Print the counts; return 1 where there are fewer tests than there were."""
    counting = _Counting(dict(argument.split("=", 1) for argument in sys.argv[1:]))
    os.environ["POLICYTOOL_COMPAT"] = sys.executable  # else tests for TensorFlow are left out
    os.environ["POLICYTOOL_SAMPLE"] = "all"  # as `make test-all` runs them
    result = io.StringIO()
    with contextlib.redirect_stdout(result):
        code = pytest.main(["--collect-only", "-q", "-p", "no:randomly"], plugins=[counting])
    if code:
        sys.stdout.write(result.getvalue()[-5000:])
        return int(code)
    for target in (*counting.targets, _TOGETHER):
        sys.stdout.write(f"{counting.counts[target]:7,} {target}\n")
    total = counting.counts[_TOGETHER]
    if total < LEAST:
        sys.stdout.write(f"there were {LEAST:,}\n")
    return int(total < LEAST)


if __name__ == "__main__":
    sys.exit(main())
