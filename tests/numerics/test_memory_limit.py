"""The default memory limit of TensorFlow, and the detection of missing memory."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final

import pytest

from policytool.numerics import workers
from policytool.numerics.workers import MemoryLimit, limit_of
from policytool.runtime.library import Refused, is_shortage
from policytool.runtime.predict import memory_bounded
from policytool.support.files import opening
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.support.limits import Limit

GIB: Final = 2**30


@pytest.mark.parametrize(
    ("weights", "machine", "wanted"),
    [
        (0, 16 * GIB, 2 * GIB),
        (GIB // 2, 16 * GIB, 5 * GIB),
        (GIB - 1, 64 * GIB, 8 * GIB - 6),
        (GIB // 2, 8 * GIB, 4 * GIB),
        (0, 2 * GIB, GIB),
    ],
)
def test_the_limit_follows_the_weights_and_the_machine(
    weights: int, machine: int, wanted: int
) -> None:
    """
    The default limit is 2 GiB plus six times the weights, at most half of the machine's memory.
    """
    assert limit_of(weights, machine) == MemoryLimit(bytes=wanted, most=machine // 2)


@pytest.mark.parametrize(
    ("told", "wanted"), [(b"1073741824\n", GIB), (b"max\n", None), (None, None)]
)
def test_limit_in_a_container_follows_the_control_group(
    told: bytes | None, wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    In a container the limit follows its control group, and otherwise the memory of the machine.
    """
    if sys.platform != "linux":
        pytest.skip("limits hold on Linux alone")

    def read(_path: Path, _limit: Limit) -> bytes:
        if told is None:
            raise FileNotFoundError
        return told

    monkeypatch.setattr(opening, "read_bounded", read)
    result = workers.machine_memory()
    assert result is not None
    assert result == wanted or (wanted is None and result > GIB // 4)


def shortage(kind: BaseException) -> BaseException:
    """Return an error of policytool that was raised from this exception."""
    refused = Refused("not-loadable", "cannot load it")
    refused.__cause__ = kind
    return refused


def test_a_lack_of_memory_is_seen_behind_a_refusal() -> None:
    """
    Missing memory is reported even if another error hides it, so that the model is not reported as
    broken.
    """
    exhausted = type("ResourceExhaustedError", (Exception,), {})
    for kind in (
        MemoryError(),
        exhausted("OOM"),
        OSError(errno.ENOMEM, "no"),
        RuntimeError("Cannot allocate memory"),
    ):
        assert is_shortage(shortage(kind))
        assert is_shortage(kind)
    assert not is_shortage(shortage(ValueError("wrong shape")))


@pytest.mark.skipif(sys.platform != "linux", reason="limits hold on Linux alone")
def test_job_allocates_at_most_its_limit() -> None:
    """
    A job can allocate only the limit beyond the current memory, and afterwards the previous limit
    applies.
    """
    code = (
        "from policytool.runtime.predict import memory_bounded\n"
        "from types import SimpleNamespace as N\n"
        "import resource\n"
        "none = lambda kind: []\n"
        "config = N(list_logical_devices=none, get_visible_devices=none, experimental=N())\n"
        "tf = N(config=config)\n"
        "before = resource.getrlimit(resource.RLIMIT_DATA)\n"
        "with memory_bounded({'bytes': 2**27, 'most': 2**40}, tf):\n"
        "    small = bytearray(2**26)\n"
        "    try:\n        large = bytearray(2**28)\n"
        "    except MemoryError:\n        print('bounded')\n"
        "assert resource.getrlimit(resource.RLIMIT_DATA) == before\n"
        "large = bytearray(2**28); print('free')"
    )
    done = subprocess.run(  # this interpreter
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["bounded", "free"]


def test_a_job_without_a_bound_changes_nothing() -> None:
    """A job without a limit, as on request of the user, changes no process limit."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_bounded(None, SimpleNamespace()):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before
