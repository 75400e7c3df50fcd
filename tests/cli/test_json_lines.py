"""``--format jsonl``, ``--shard`` and ``merge``: the same bytes from any number of shards."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policytool.commands.batch.task import MOST
from policytool.support.processes import interrupts
from tests.conftest import MIXED_H5, MIXED_JSON, MIXED_KERAS, Ended, run
from tests.helpers.marks import ALONE, THOROUGH, examples
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

OLD: Final = FIXTURES / "tf2.3/exp_mf16_fixed128.h5"
CURRENT: Final = FIXTURES / "keras3.15/default_float32.h5"
CALLS: Final = (
    ("inspect",),
    ("inspect", "--only", "mixed"),
    ("audit",),
    ("audit", "--target", "keras3", "--fail-on", "error"),
    ("audit", "--skip-unrecognized"),
    ("migrate", "--preview", "--to", "float32"),
    ("migrate", "--preview", "--target", "keras3"),
)
FILES: Final[dict[str, Path | bytes]] = {
    "a.h5": MIXED_H5,
    "b.keras": MIXED_KERAS,
    "c.json": MIXED_JSON,
    "d/old.h5": OLD,
    "d/current.h5": CURRENT,
    "e.h5": b"\x89HDF\r\n\x1a\nbroken",
    "f.txt": b"not a model",
    "g/h.txt": b"not a model either",
}
"""Models, a failure, and files that are skipped."""


def fill(directory: Path, names: set[str]) -> None:
    """Make files in a directory."""
    for name in names:
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        content = FILES[name]
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            shutil.copy(Path(content), path)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with all files in ``models``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    fill(tmp_path / "models", set(FILES))
    return tmp_path


def lines_of(ended: Ended) -> list[dict[str, Any]]:
    """Return the lines of a report, each of which has to match the schema."""
    schema = json.loads(
        resources.files("policytool.reports.schemas")
        .joinpath("lines.schema.json")
        .read_text(encoding="utf-8")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    actual = [json.loads(line) for line in ended.out.splitlines()]
    for line in actual:
        validator.validate(line)
    assert ended.out.isascii()
    assert ended.out.endswith("\n")
    return actual


def shards(count: int, *call: str) -> tuple[list[Path], list[int]]:
    """Run all shards, and return their reports and exit codes."""
    paths, codes = [], []
    for index in range(1, count + 1):
        ended = run(*call, "--format", "jsonl", "--shard", f"{index}/{count}")
        header = json.loads(ended.out.splitlines()[0])
        assert header["shard"] == {"index": index, "count": count}
        path = Path(f"part-{index}.jsonl")
        path.write_text(ended.out, encoding="utf-8")
        paths.append(path)
        codes.append(ended.code)
    return paths, codes


@THOROUGH
@settings(max_examples=examples(60))
@given(
    call=st.sampled_from(CALLS),
    names=st.sets(st.sampled_from(sorted(FILES)), max_size=6),
    count=st.integers(1, 8),
    seed=st.integers(0, 100),
)
def test_merged_shards_are_the_report_of_one_run(
    tmp_path_factory: pytest.TempPathFactory,
    call: tuple[str, ...],
    names: set[str],
    count: int,
    seed: int,
) -> None:
    """Byte by byte, and with its exit code, in any order of the reports."""
    place = tmp_path_factory.mktemp("fleet")
    (place / "models").mkdir()
    fill(place / "models", names)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        whole = run(*call, "models", "--format", "jsonl")
        paths, codes = shards(count, *call, "models")
        random.Random(seed).shuffle(paths)  # noqa: S311  # not for cryptography
        merged = run("merge", *paths)
    assert merged.out == whole.out
    assert merged.code == whole.code
    assert (4 in codes) == (whole.code == 4 and not names)
    lines = lines_of(whole)
    assert lines[-1]["end"]["exit_code"] == whole.code
    assert len(lines) - 2 + lines[-1]["end"]["skipped"] == len(names)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_lines_have_the_values_of_the_json_report(call: tuple[str, ...]) -> None:
    """The lines are in the order of the inputs, and the format does not change the exit code."""
    ended, other = (run(*call, "models", "--format", name) for name in ("jsonl", "json"))
    assert ended.code == other.code
    lines = lines_of(ended)[1:-1]
    models = other.json.get("models", other.json.get("plans"))
    assert [line["model"] for line in lines if "model" in line] == models
    assert [line["failure"] for line in lines if "failure" in line] == other.json["failures"]
    positions = [line["input"] for line in lines]
    assert positions == sorted(set(positions))


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("name", ["table", "json"])
def test_shards_in_other_formats_have_each_model_once(name: str) -> None:
    """A shard is a part of the inputs in every format."""
    ends = [
        run("inspect", "models", "--shard", f"{item}/3", "--format", name) for item in (1, 2, 3)
    ]
    for file in ("a.h5", "b.keras", "c.json", "old.h5", "current.h5"):
        assert sum(file in ended.out for ended in ends) == 1


@THOROUGH
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_migrated_shards_write_each_output_once(jobs: str) -> None:
    """Outputs of an earlier shard are not inputs of a later one."""
    call = ("migrate", "models", "--to", "float32", "--jobs", jobs)
    paths, _ = shards(3, *call)
    merged = lines_of(run("merge", *paths))
    written = [line["model"]["output"] for line in merged[1:-1] if "model" in line]
    assert merged[-1]["end"]["models_written"] == len([item for item in written if item]) >= 4
    assert all(Path(item).is_file() for item in written if item)


def test_shards_that_write_the_same_file_are_rejected(place: Path) -> None:
    """The order of the shards would decide which model remains."""
    (place / "other").mkdir()
    shutil.copy(place / "models/a.h5", place / "other/a.h5")
    call = ("migrate", "models/a.h5", "other/a.h5", "--to", "float32", "-o", "out/", "--shard")
    ended = run(*call, "1/2")
    assert ended.code == 2
    assert "from both" in ended.err
    assert not (place / "out").exists()
    assert run(*call, "1/1").code == 3


@pytest.mark.parametrize(
    "text",
    ["", "1", "0/2", "3/2", "-1/2", "1/0", "1/2/3", "a/b", "1 / 2", "1.0/2", f"1/{MOST + 1}"],
)
def test_invalid_shard_is_an_error(text: str) -> None:
    """The error contains the expected form."""
    ended = run("audit", "--shard", text)
    assert ended.code == 2
    assert "I/N" in ended.err


def test_empty_shards_succeed_and_empty_runs_do_not(place: Path) -> None:
    """Another shard may have models."""
    for command in ("inspect", "audit", "migrate"):
        ended = run(command, "models/a.h5", "--shard", "2/2")
        assert (ended.code, "in shard 2/2" in ended.err) == (0, True)
        assert run(command, "models/g", "--shard", "1/2").code == 0
    (place / "empty").mkdir()
    assert run("audit", "empty", "--shard", "1/2").code == 4


def test_options_that_need_all_models_are_rejected(place: Path) -> None:
    """Each option gives one sentence."""
    for option in ("--fix", "--diff", "--write-baseline=known.json"):
        ended = run("audit", "models", "--format", "jsonl", option)
        assert (ended.code, ended.out) == (2, "")
        assert "conflict" in ended.err
    assert run("audit", "models", "--shard", "1/2", "--write-baseline=known.json").code == 2
    assert run("inspect", "models", "--summary", "--shard", "1/2").code == 2
    assert run("inspect", "models", "--summary", "--format", "jsonl").code == 2
    assert run("audit", "models/a.h5", "--write-baseline", "known.json").code == 0
    call = ("audit", "models", "--baseline", "known.json", "--shard", "1/2")
    assert run(*call).code in {0, 1, 3}
    (place / "models/a.h5").unlink()
    assert "renamed" in run(*call).err


@THOROUGH
def test_baselines_and_suppressions_work_line_by_line(place: Path) -> None:
    """A renamed file keeps its known findings, and the notes are those of the table."""
    run("audit", "models/d/old.h5", "--write-baseline", "known.json")
    (place / "models/d/old.h5").rename(place / "models/d/older.h5")
    (place / "own.toml").write_text(
        '[[suppress]]\nrules = ["PT1"]\npath = "a.h5"\nreason = "known"\n'
        '[[suppress]]\nrules = ["PT6"]\nreason = "unused"\n',
        encoding="utf-8",
    )
    call = ("audit", "models", "--config", "own.toml", "--baseline", "known.json", "-v")
    ended, other = (run(*call, "--format", name) for name in ("jsonl", "json"))
    assert [item["model"] for item in lines_of(ended) if "model" in item] == other.json["models"]
    assert any(model["suppressed"] for model in other.json["models"])
    assert (ended.err, ended.code) == (other.err, other.code)
    assert "matches no finding" in ended.err


@THOROUGH
def test_other_reports_are_written_beside_json_lines(place: Path) -> None:
    """The other report equals that of a run without lines."""
    for command in ("inspect", "audit", "migrate"):
        call = (command, "models", *(("--preview",) if command == "migrate" else ()))
        run(*call, "--format", "jsonl", "--format", "json=a.json")
        assert (place / "a.json").read_text(encoding="utf-8") == run(*call, "--format", "json").out


def test_usage_error_in_a_run_marks_the_report_as_incomplete(place: Path) -> None:
    """The last line says that models are missing, and ``merge`` rejects the report."""
    ended = run("inspect", "models", "--layer", "(", "--format", "jsonl")
    assert ended.code == 2
    assert lines_of(ended)[-1] == {"end": {"complete": False, "exit_code": 2}}
    (place / "a.jsonl").write_text(ended.out, encoding="utf-8")
    merged = run("merge", "a.jsonl")
    assert (merged.code, merged.out) == (3, "")
    assert "incomplete" in merged.err


def _without(lines: list[str], number: int) -> list[str]:
    return [line for place, line in enumerate(lines) if place != number]


def _with(lines: list[str], number: int, line: str) -> list[str]:
    return [line if place == number else other for place, other in enumerate(lines)]


DAMAGES: Final[dict[str, Callable[[list[str]], list[str]]]] = {
    "empty": lambda _: [],
    "header only": lambda lines: lines[:1],
    "no header": lambda lines: lines[1:],
    "no end": lambda lines: lines[:-1],
    "line missing": lambda lines: _without(lines, 2),
    "line twice": lambda lines: [*lines[:2], lines[1], *lines[2:]],
    "lines swapped": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "line after the end": lambda lines: [*lines, lines[1]],
    "two ends": lambda lines: [*lines, lines[-1]],
    "not JSON": lambda lines: _with(lines, 1, "{"),
    "not an object": lambda lines: _with(lines, 1, "[1]"),
    "a cut line": lambda lines: _with(lines, 1, lines[1][:-20]),
    "a number in place of a model": lambda lines: _with(lines, 1, '{"input": 0, "model": 1}'),
    "two kinds": lambda lines: _with(lines, 1, '{"input": 0, "model": {}, "failure": {}}'),
    "another key": lambda lines: _with(lines, 1, '{"input": 0, "other": {}}'),
    "input of another shard": lambda lines: _with(lines, 1, '{"input": 1, "model": {}}'),
    "input beyond the last": lambda lines: [*lines[:-1], '{"input": 98, "model": {}}', lines[-1]],
    "true as input": lambda lines: _with(lines, 1, '{"input": true, "model": {}}'),
    "a huge number": lambda lines: _with(lines, 1, f'{{"input": {"9" * 5000}, "model": {{}}}}'),
    "control characters": lambda lines: _with(lines, 1, lines[1].replace("models", "\x1b[31m", 1)),
    "deep lists": lambda lines: _with(lines, 1, f'{{"input": 0, "model": {"[" * 9999}'),
    "repeated keys": lambda lines: _with(lines, 1, '{"input": 0, "input": 0, "model": {}}'),
    "list in the header": lambda lines: _with(lines, 0, lines[0].replace(": 4,", ": [],")),
    "another version": lambda lines: _with(
        lines, 0, lines[0].replace('"version": 1', '"version": 2')
    ),
    "shard 0": lambda lines: _with(lines, 0, lines[0].replace('"index": 1', '"index": 0')),
    "many shards": lambda lines: _with(
        lines, 0, lines[0].replace('"count": 2}', '"count": 99999}')
    ),
    "other inputs": lambda lines: _with(lines, 0, lines[0].replace('"count": 8', '"count": 9')),
    "another count": lambda lines: _with(
        lines, -1 % len(lines), lines[-1].replace('"models": ', '"models": 1')
    ),
    "a negative count": lambda lines: _with(
        lines, -1 % len(lines), lines[-1].replace('"skipped": ', '"skipped": -')
    ),
    "code 6": lambda lines: _with(
        lines,
        -1 % len(lines),
        lines[-1].replace('code": 3', 'code": 6').replace('code": 0', 'code": 6'),
    ),
}


@THOROUGH
@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_reports_are_rejected(name: str) -> None:
    """The error is one sentence with exit code 3, and no report looks complete afterwards."""
    paths, _ = shards(2, "inspect", "models")
    lines = paths[0].read_text(encoding="utf-8").splitlines()
    damaged = DAMAGES[name](lines)
    assert damaged != lines
    paths[0].write_text("".join(f"{line}\n" for line in damaged), encoding="utf-8")
    ended = run("merge", *paths)
    assert ended.code == 3
    assert ended.err.startswith("error: ")
    assert ended.err.count("\n") == 1
    assert '"complete": true' not in ended.out
    assert "\x1b" not in ended.out + ended.err


@THOROUGH
@pytest.mark.usefixtures("place")
def test_reports_of_different_runs_are_rejected() -> None:
    """Each difference has a message."""
    (first, second), _ = shards(2, "audit", "models")
    kept = second.read_text(encoding="utf-8")
    for call, words in (
        (("inspect", "models"), "different commands"),
        (("audit", "models/a.h5", "models/b.keras"), "different lists of inputs"),
        (("audit", "models", "--target", "keras3"), "different options"),
        (("audit", "models", "--fail-on", "never"), "different options"),
        (("audit", "models", "--skip-unrecognized"), "different options"),
    ):
        ended = run(*call, "--format", "jsonl", "--shard", "2/2")
        second.write_text(ended.out, encoding="utf-8")
        merged = run("merge", first, second)
        assert (merged.code, merged.out) == (3, "")
        assert words in merged.err
    second.write_text(kept.replace('"policytool", "version": "', '"policytool", "version": "9', 1))
    assert "different versions" in run("merge", first, second).err
    second.write_text(kept, encoding="utf-8")
    assert "missing" in run("merge", first).err
    assert "both from" in run("merge", first, second, first).err
    third = run("audit", "models", "--format", "jsonl", "--shard", "3/3").out
    Path("third.jsonl").write_text(third, encoding="utf-8")
    assert "same N" in run("merge", first, second, "third.jsonl").err
    assert run("merge", second, first).code == 3  # e.h5 is broken


@pytest.mark.usefixtures("place")
def test_merge_reads_a_list_of_paths_and_regular_files() -> None:
    """Other commands read the same kind of list."""
    whole = run("inspect", "models", "--format", "jsonl")
    paths, _ = shards(2, "inspect", "models")
    listed = "\n".join(map(str, paths)).encode()
    assert run("merge", "-", stdin=listed).out == whole.out
    assert run("merge", "-", stdin=listed.replace(b"\n", b"\0")).out == whole.out
    assert run("merge").code == 2
    assert run("merge", "-").code == 2
    assert run("merge", "missing.jsonl").code == 3
    assert run("merge", "models").code == 3
    os.mkfifo("pipe")
    assert "FIFO" in run("merge", "pipe").err


@pytest.mark.usefixtures("place")
def test_merge_names_the_limit_of_a_long_line() -> None:
    """The user can raise this limit."""
    paths, _ = shards(1, "inspect", "models")
    ended = run("merge", *paths, "--limit", "json-bytes=1K")
    assert ended.code == 3
    assert "json-bytes" in ended.err


def test_interrupt_takes_effect_after_the_current_line() -> None:
    """A second interrupt ends the process at once (``tests/crash/test_signals.py``)."""
    done = []
    before = signal.signal(signal.SIGINT, interrupts.interrupt)

    def interrupted() -> None:
        with interrupts.defer_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("line")

    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        interrupts.resume()
        signal.signal(signal.SIGINT, before)
    assert done == ["line"]


@ALONE
@THOROUGH
@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_reports_are_valid(tmp_path: Path, jobs: str, number: signal.Signals) -> None:
    """Within a second, as far as they go, with a last line that says so."""
    for one in range(600):
        shutil.copy(MIXED_H5, tmp_path / f"{one:03}.h5")
    with (tmp_path / "report.jsonl").open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", "policytool", "audit", ".", "--format", "jsonl", "--jobs", jobs],
            cwd=tmp_path,
            stdout=stream,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(FIXTURES.parent)},
        )
        while (tmp_path / "report.jsonl").stat().st_size < 20_000:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        start = time.monotonic()
        _, result = process.communicate(timeout=30)
    assert time.monotonic() - start < 5  # a second, on a machine that does nothing else
    assert process.returncode == 130
    assert result == b"\nerror: interrupted.\n"
    text = (tmp_path / "report.jsonl").read_text(encoding="utf-8")
    lines = lines_of(Ended(code=130, out=text, err=""))
    assert lines[-1] == {"end": {"complete": False, "exit_code": 130}}
    assert [line["input"] for line in lines[1:-1]] == list(range(len(lines) - 2))
    assert 0 < len(lines) - 2 < 600


@ALONE
@THOROUGH
def test_closed_pipe_ends_the_run_without_a_message(place: Path) -> None:
    """Other formats have the same behaviour."""
    (place / "models/e.h5").unlink()
    for number in range(200):
        shutil.copy(MIXED_H5, place / f"models/{number}.h5")
    process = subprocess.Popen(
        [sys.executable, "-m", "policytool", "inspect", "models", "--format", "jsonl", "-q"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(FIXTURES.parent)},
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
