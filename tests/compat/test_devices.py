"""
What a check does with devices, under a real TensorFlow: logical CPU devices stand for several, and
the registry's word is held against what runs.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import policytool
from policytool.numerics.check_results import checks
from policytool.releases.dtype_support import missing
from policytool.support.errors import PolicytoolError
from policytool.support.text import codec
from tests.compat.asking import run_script
from tests.model.test_truth import CASES

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.compat

CHILD: Final = Path(__file__).with_name("devicing.py")
SECONDS: Final = 300
POLICIES: Final = ("mixed_float16", "mixed_bfloat16", "float64")
FAMILIES: Final = {"keras2": ("tf2.15", "h5"), "keras3": ("keras3.15", "keras")}
"""Which fixtures stand for a family: a release and a format that its newest library loads."""


@pytest.fixture(scope="session")
def tried(
    compat_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Any], Any]:
    """Return a function that does a task in a child of its own, once."""
    scratch = tmp_path_factory.mktemp("devices")

    @cache
    def run(task: str, arguments: str) -> Any:
        result = scratch / f"{task}-{abs(hash(arguments))}.json"
        command = (compat_python, CHILD, task, arguments, result)
        run_script(*command, seconds=SECONDS, KERAS_HOME=str(scratch))
        return json.loads(result.read_text(encoding="utf-8"))

    return lambda task, arguments: run(task, json.dumps(arguments))


@pytest.mark.parametrize("count", [2, 3])
def test_devices_work_side_by_side(tried: Callable[[str, Any], Any], count: int) -> None:
    """Each model computes with its variables on its own device, all of them at the same time."""
    ran = tried("logical", count)["ran"]
    for number, one in enumerate(ran):
        place = f"/job:localhost/replica:0/task:0/device:CPU:{number}"
        assert one["made"] == place
        assert one["variables"] == [place]
        assert codec.read(checks.Timing, one["timed"]).latency > 0
    assert max(item["start"] for item in ran) < min(item["end"] for item in ran)


@pytest.mark.parametrize("count", [2, 3])
def test_devices_are_listed_and_chosen(tried: Callable[[str, Any], Any], count: int) -> None:
    """
    Each device is listed under the name of its option, and a missing device gives an error with the
    list.
    """
    result = tried("logical", count)
    names = [f"/device:CPU:{number}" for number in range(count)]
    assert [codec.read(checks.TensorFlowDevice, item).name for item in result["listed"]] == [
        f"cpu:{number}" for number in range(count)
    ]
    assert all(
        item["kind"] == "cpu"
        and item["model"]
        and item["memory"] > 2**30
        and item["compute_capability"] is None
        for item in result["listed"]
    )
    assert result["all"] == names
    assert result["chosen"] == {
        "auto": names[:1],
        "cpu": names[:1],
        "cpu:1": names[1:2],
        "CPU:0": names[:1],
    }
    code, sentence = result["none"]
    assert code == "no-device"
    assert f"detects {', '.join(item['name'] for item in result['listed'])}" in sentence


def test_devices_are_set_up_once(tried: Callable[[str, Any], Any]) -> None:
    """
    Another job may ask for the same devices again, not for others; nothing is placed softly, and
    TF32 is off.
    """
    result = tried("logical", 2)
    assert result["again"] == []
    assert result["other"] == [
        "devices",
        "3 CPU devices were requested, but this process was started with 2",
    ]
    assert (result["soft"], result["tf32"]) == (False, False)


def test_failure_on_one_of_several_devices_names_the_device(
    tried: Callable[[str, Any], Any],
) -> None:
    """The other devices finish first. The failure of the first device is reported."""
    result = tried("logical", 3)
    assert result["failed"] == ["failed", "cpu:1: ValueError: /device:CPU:1"]
    assert result["ended"] == ["/device:CPU:0"]


def test_peak_memory_is_the_size_of_the_tensors(tried: Callable[[str, Any], Any]) -> None:
    """
    Two matrices exist at the same time besides the input. The weights and the input do not count.
    """
    sizes = [512, 1024]
    *result, slow, took = tried("timed", sizes)
    timings = [codec.read(checks.Timing, item) for item in result]
    assert [timing.peak_memory for timing in timings] == [
        2 * 4 * size * size for size in sizes for _ in range(2)
    ]
    assert all(
        timing.how == "device" and timing.spread[0] <= timing.latency <= timing.spread[1]
        for timing in timings
    )
    assert [round(timing.throughput * timing.latency) for timing in timings] == [
        size for size in sizes for _ in range(2)
    ]
    assert slow["latency"] == pytest.approx(0.3, abs=0.1)
    assert slow["throughput"] == pytest.approx(6 / slow["latency"])
    assert (slow["peak_memory"], slow["how"]) == (None, None)
    assert took < 4


def test_ops_are_deterministic_on_request(tried: Callable[[str, Any], Any]) -> None:
    """
    Determinism is turned on for a job, which can still initialise its layers, and off for the next.
    """
    assert tried("determined", None) == {"first": True, "then": False}


def test_missing_kernel_is_detected_in_every_part_of_a_graph(
    tried: Callable[[str, Any], Any],
) -> None:
    """
    TensorFlow needs the kernel also for unused ops, branches and loops, but not for ops that XLA
    compiles.
    """
    result = tried("graphs", None)
    assert {name for name, one in result.items() if one["is_missing"]} == {
        name for name, one in result.items() if one["reported"]
    }
    assert {name for name, one in result.items() if not one["reported"]} == {"compiled", "wide"}
    assert all(one["error"] is None for name, one in result.items() if not one["reported"])
    for kernel in (
        codec.read(checks.MissingKernel, kernel)
        for item in result.values()
        for kernel in item["reported"]
    ):
        assert (kernel.type, kernel.dtype, kernel.elsewhere, kernel.in_float32) == (
            "MaxPool3D",
            "float16",
            False,
            True,
        )
        assert kernel.layer is not None
        assert kernel.op.startswith(kernel.layer.removeprefix("at "))
    assert result["loop"]["reported"][0]["layer"] == "at while"
    assert len(result["nested"]["reported"]) == 2


def test_ops_that_fall_back_to_the_cpu_are_reported_separately(
    tried: Callable[[str, Any], Any],
) -> None:
    """
    TensorFlow makes texts on the CPU in any dtype. A constant computes nothing and is not reported.
    """
    actual = {
        item.type: item for item in map(codec.reader(checks.MissingKernel), tried("texts", None))
    }
    assert set(actual) == {"AsString", "StringJoin"}
    assert all(
        item.elsewhere and not item.in_float32 and item.layer == item.type
        for item in actual.values()
    )
    assert actual["AsString"].dtype == "float32"


def test_registry_predicts_which_ops_run(tried: Callable[[str, Any], Any]) -> None:
    """TensorFlow places exactly the stateless ops that are not reported, in four dtypes."""
    result = tried("registry", None)
    assert not result["differing"]
    assert result["counts"]["both"] > 50
    assert result["counts"]["neither"] > 1000


@pytest.mark.parametrize("family", FAMILIES)
def test_pooling_layers_run_without_reported_kernels(
    tried: Callable[[str, Any], Any], family: str
) -> None:
    """Reports on live layers agree with their runs, and with the table of kernels in policytool."""
    library = "tf_keras2.21" if family == "keras2" else "keras3.15"
    for name, policy, answer in tried("pools", family):
        types = tuple(item["type"] for item in answer["reported"])
        assert bool(types) == answer["is_missing"], (name, policy, answer)
        assert types == missing(library, name, None, policy, "cpu")


@pytest.mark.parametrize("family", FAMILIES)
def test_models_run_without_reported_kernels(
    tried: Callable[[str, Any], Any], family: str, tmp_path: Path
) -> None:
    """No model of the fixtures is reported with a missing kernel that exists, under any policy."""
    release, kind = FAMILIES[family]
    paths = []
    for case in CASES:
        if (case.release, case.format) != (release, kind) or case.name == "lambda":
            continue
        for policy in POLICIES:
            target = tmp_path / f"{case.name}.{policy}.{kind}"
            try:
                policytool.migrate(case.path, to=policy, output=target)
            except PolicytoolError:
                continue  # the plan's own refusals are tested elsewhere
            paths += [str(target)] if target.exists() else []
    result = tried("models", [family, paths])
    asked = [item for item in result if "untraced" not in item]
    assert len(asked) > 60
    wrong = [
        item
        for item in asked
        if bool(item["reported"]) != item["is_missing"]
        or (item["error"] and not item["is_missing"])
    ]
    assert not wrong, wrong
