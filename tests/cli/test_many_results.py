"""Results of many models, which are kept in a temporary file until their reports are written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.reports.findings import FINDING_REPORTERS
from policytool.reports.inspection import REPORTERS
from policytool.reports.plans import PLAN_REPORTERS
from policytool.support import spilled_values
from tests.conftest import run
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.sampling import sampled
from tests.helpers.small_models import dense, sequential

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.reports import Reporter

MODELS: Final = (
    "keras2.2.4/nested_models.h5",
    "keras3.15/global_mixed_float16.keras",
    "keras3.15/int8.keras",
    "tf2.15/shared_layer.h5",
    "tf2.3/exp_mf16_fixed128.h5",
    "tf2.5/global_mixed_float16",
)
CALLS: Final[Mapping[tuple[str, ...], Sequence[Reporter[Any]]]] = {
    ("inspect", "models"): REPORTERS,
    ("inspect", "models", "--only", "mixed", "--releases", "all"): REPORTERS,
    ("audit", "models", "--target", "keras3"): FINDING_REPORTERS,
    ("audit", "models", "--baseline", "known.json", "-v"): FINDING_REPORTERS,
    ("migrate", "models", "--to", "mixed_bfloat16", "--preview"): PLAN_REPORTERS,
}
COPIES: Final = (200, 800)
LAYERS: Final = 30


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with models, a file that is none, and a baseline."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLICYTOOL_NO_CONFIG", "1")
    models = tmp_path / "models"
    models.mkdir()
    for name in MODELS:
        source = FIXTURES / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, models / source.name)
    (models / "damaged.h5").write_bytes((FIXTURES / MODELS[0]).read_bytes()[:1000])
    (models / "other.json").write_text("[]", encoding="utf-8")
    return tmp_path


@THOROUGH
@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_reports_are_the_same_from_a_file(
    call: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Reports in files, and a sample of those on stdout, are the same, with messages and exit code.
    """
    run("audit", "models/shared_layer.h5", "models/int8.keras", "--write-baseline", "known.json")
    names = [reporter.name for reporter in CALLS[call]]
    more = [f"--format={name}={place / name}" for name in names]
    text_names = [name for name in names if name not in {"diff", "parquet"}]
    on_stdout = sampled(f"formats on stdout of {' '.join(call)}", text_names, share=4)

    def reports() -> list[object]:
        ended = [run(*call, "--format", name) for name in on_stdout]
        ended.append(run(*call, "--format", "jsonl", *more))
        return [ended, [(place / name).read_bytes() for name in names]]

    expected = reports()
    monkeypatch.setattr(spilled_values, "FEW", 1)
    assert reports() == expected


@THOROUGH
def test_baseline_is_the_same_from_a_temporary_file(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The baseline contains the findings before suppression."""
    call = ("audit", "models", "--write-baseline", "known.json")
    first = run(*call)
    expected = (place / "known.json").read_bytes()
    assert json.loads(expected)["findings"]
    monkeypatch.setattr(spilled_values, "FEW", 1)
    assert run(*call) == first
    assert (place / "known.json").read_bytes() == expected


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("more", [(), ("--format", "jsonl", "--format", "json=report.json")])
def test_full_disk_ends_the_run_with_a_one_line_error(
    more: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No report is written, an earlier report stays, and lines are marked as incomplete."""
    (place / "report.json").write_text("old", encoding="utf-8")
    monkeypatch.setattr(spilled_values, "FEW", 1)
    with Path("/dev/full").open("wb+", 0) as full:
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: full)
        ended = run("inspect", "models", *more)
    assert ended.code == 3
    assert ended.err.endswith(
        "error: The temporary file for results cannot be written: No space left on device. Set "
        "TMPDIR to a directory on a disk with enough space.\n"
    )
    assert (place / "report.json").read_text(encoding="utf-8") == "old"
    if more:
        assert json.loads(ended.out.splitlines()[-1])["end"] == {"complete": False, "exit_code": 3}
    else:
        assert ended.out == ""


def architecture(folder: Path, count: int) -> Path:
    """Return a directory with so many copies of an architecture with many layers."""
    folder.mkdir()
    first = folder / "0.json"
    config = sequential(*(dense(f"dense_{number}", "float16") for number in range(LAYERS)))
    first.write_text(json.dumps({**config, "keras_version": "2.4.0"}), encoding="utf-8")
    for number in range(1, count):
        os.link(first, folder / f"{number}.json")
    return folder


@pytest.fixture(scope="module")
def few_and_many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Return a directory with few models, and one with four times as many."""
    root = tmp_path_factory.mktemp("many")
    return tuple(architecture(root / str(count), count) for count in COPIES)


def peak(place: Path, *arguments: str) -> int:
    """Return the peak memory of a run in one process, in MiB."""
    script = ROOT / "tests/bench/measuring.py"
    command = [sys.executable, "-m", "policytool", *arguments, "--jobs", "1"]
    done = subprocess.run(
        [sys.executable, "-S", str(script), "300", str(place / "messages"), *command],
        capture_output=True,
        text=True,
        check=True,
        cwd=place,
    )
    result = json.loads(done.stdout)
    assert result["code"] == ("--preview" in arguments), (place / "messages").read_text(
        encoding="utf-8"
    )
    peak: int = result["mib"]
    return peak


@SLOW
@ALONE
@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "--format", "json", "--format", "csv=a.csv"),
        ("inspect", "--format", "jsonl", "--format", "json=a.json"),
        (
            *("audit", "--select", "PT3", "--fail-on", "never"),
            *("--format", "sarif", "--format", "junit=a.xml"),
        ),
        ("migrate", "--to", "mixed_float16", "--preview", "--format", "json"),
    ],
    ids=" ".join,
)
def test_memory_does_not_grow_with_the_number_of_models(
    arguments: tuple[str, ...], few_and_many: tuple[Path, ...], place: Path
) -> None:
    """Four times as many models need at most 10% more."""
    few, many = (peak(place, *arguments, str(folder)) for folder in few_and_many)
    assert many <= 1.1 * few
