"""``--cache``: the same reports with fewer models read."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.commands import audit, fix, inspect, remote_migration
from policytool.commands.batch import cache as caches
from policytool.commands.batch import parallel
from policytool.commands.batch.cache import ResultCache
from policytool.formats import discovery
from policytool.reports.findings import FINDING_REPORTERS
from policytool.reports.inspection import REPORTERS
from policytool.rules import AuditOptions
from policytool.support import limits
from policytool.support.files import atomic, listings
from tests.conftest import (
    MIXED_H5,
    MIXED_JSON,
    MIXED_KERAS,
    MIXED_SAVEDMODEL,
    MIXED_YAML,
    run,
)
from tests.helpers.marks import SLOW, THOROUGH
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.sampling import sampled
from tests.helpers.small_models import h5_model, sequential, small_saved_model

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = THOROUGH

SOURCES: Final = (MIXED_H5, MIXED_KERAS, MIXED_SAVEDMODEL, MIXED_JSON, MIXED_YAML)
FAST: Final = AuditOptions(plans_commands=False)
MOMENT: Final = 0.03
"""Seconds after which a file counts as unchanged for long."""


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory with models and another file; its parent is the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(listings, "SETTLING_NS", 20_000_000)
    directory = tmp_path / "models"
    directory.mkdir()
    for number, source in enumerate(SOURCES):
        copy = directory / f"m{number}{source.suffix}"
        if source.is_dir():
            shutil.copytree(source, copy)
        else:
            shutil.copyfile(source, copy)
    (directory / "notes.txt").write_text("nothing\n", encoding="utf-8")
    time.sleep(MOMENT)
    return directory


def audited(directory: Path, cache: ResultCache | None = None) -> list[Any]:
    """Return the result of auditing a directory."""
    inputs = list(discovery.inputs([str(directory)]))
    return list(parallel.run_all(audit.TASK, inputs, FAST, 1, cache=cache))


def came_from_cache(directory: Path) -> tuple[int, int]:
    """Audit with the cache, and return the number of results from the cache and of all results."""
    cache = ResultCache(Path("cache"))
    assert audited(directory, cache) == audited(directory)
    return cache.hits, cache.requested


def entries() -> list[Path]:
    """Return the entries of the cache."""
    return sorted(Path("cache").rglob("*/??/*"))


# The same reports


@pytest.mark.parametrize(
    ("command", "form"),
    sampled(
        "cached reports",
        [
            *(("inspect", reporter.name) for reporter in REPORTERS),
            *(("audit", reporter.name) for reporter in FINDING_REPORTERS),
            ("inspect --summary", "json"),
        ],
        share=3,
    ),
)
def test_reports_equal_those_without_a_cache(command: str, form: str) -> None:
    arguments = (*command.split(), "models", "--format", form, "--jobs", "1")
    plain = run(*arguments)
    first = run(*arguments, "--cache", "cache", "-v")
    second = run(*arguments, "--cache", "cache", "-v")
    assert plain.out == first.out == second.out
    assert plain.code == first.code == second.code
    assert "note: 0 of 6 results came from the cache." in first.err
    assert "note: 6 of 6 results came from the cache." in second.err


def test_processes_compute_only_results_missing_from_the_cache(models: Path) -> None:
    """Several processes compute only missing results and keep the order of inputs."""
    assert came_from_cache(models) == (0, 6)
    for number in range(3):
        h5_model(models / f"m1-{number}.h5", sequential())
    time.sleep(MOMENT)
    plain = run("audit", "models", "--format", "json")
    cached = run("audit", "models", "--format", "json", "--cache", "cache", "--jobs", "2", "-v")
    again = run("audit", "models", "--format", "json", "--cache", "cache", "--jobs", "2", "-v")
    assert plain.out == cached.out == again.out
    assert "9 of 9 results" in again.err


def _edit(path: Path, chance: random.Random) -> None:
    """Change a byte in place, and restore the modification time."""
    file = path if path.is_file() else chance.choice(list(path.rglob("*.pb")))
    before = file.stat()
    data = bytearray(file.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def _touch(path: Path, _chance: random.Random) -> None:
    path.touch()


def _rename(path: Path, chance: random.Random) -> None:
    path.rename(path.with_stem(f"r{chance.randrange(10**6)}"))


def _swap(path: Path, chance: random.Random) -> None:
    """Exchange the names of two models."""
    other = chance.choice(sorted(path.parent.iterdir()))
    if other != path:
        aside = path.with_name(".aside")
        path.rename(aside)
        other.rename(path)
        aside.rename(other)


def _link(path: Path, chance: random.Random) -> None:
    """Replace by a link to another original model, or to a missing file."""
    _delete(path, chance)
    path.symlink_to(chance.choice([*SOURCES, Path("nothing")]))


def _delete(path: Path, _chance: random.Random) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _forbid(path: Path, _chance: random.Random) -> None:
    if path.exists() and not path.is_symlink():
        path.chmod(stat.S_IMODE(path.stat().st_mode) ^ 0o044)


def _truncate(path: Path, chance: random.Random) -> None:
    if path.is_file() and not path.is_symlink():
        os.truncate(path, chance.randrange(path.stat().st_size + 1))


def _add(path: Path, chance: random.Random) -> None:
    source = chance.choice(SOURCES)
    copy = path.parent / f"n{chance.randrange(10**6)}{source.suffix}"
    if source.is_dir():
        shutil.copytree(source, copy)
    else:
        shutil.copyfile(source, copy)


CHANGES: Final = (_edit, _touch, _rename, _swap, _link, _delete, _forbid, _truncate, _add)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=SLOW) for seed in range(2, 40))])
def test_results_after_any_change_equal_those_without_a_cache(models: Path, seed: int) -> None:
    """Changes of content, names, times, types and modes give the report without a cache."""
    chance = random.Random(seed)  # noqa: S311
    came_from_cache(models)
    for _ in range(8):
        places = sorted(models.iterdir())
        place = chance.choice(places) if len(places) > 2 else None
        change = chance.choice(CHANGES) if place is not None else _add
        if change is _edit and place is not None and (place.is_symlink() or not place.exists()):
            change = _touch if place.exists() else _delete
        if change is _touch and place is not None and place.is_symlink():
            change = _delete  # not the fixtures
        change(place or models / "any", chance)
        time.sleep(MOMENT)
        came_from_cache(models)


def test_changed_content_with_equal_time_and_size_is_read_again(models: Path) -> None:
    place = models / "m3.json"
    came_from_cache(models)
    before = place.stat()
    place.write_text(
        place.read_text(encoding="utf-8").replace("mixed_float16", "mixed_float1X"),
        encoding="utf-8",
    )
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))
    time.sleep(MOMENT)
    assert came_from_cache(models) == (5, 6)


@pytest.mark.parametrize(
    "part", ["saved_model.pb", "variables/variables.index", "assets/words.txt", "."]
)
def test_every_file_of_a_directory_counts(tmp_path: Path, part: str) -> None:
    """A change of any file in a directory model, or a new file, makes the cached result invalid."""
    small_saved_model(tmp_path / "apart" / "a")
    time.sleep(MOMENT)
    assert came_from_cache(Path("apart")) == (0, 1)
    assert came_from_cache(Path("apart")) == (1, 1)
    place = tmp_path / "apart" / "a" / part
    place.parent.mkdir(exist_ok=True)
    place.touch()
    time.sleep(MOMENT)
    assert came_from_cache(Path("apart")) == (0, 1)


def test_output_of_a_suggested_command_counts(models: Path) -> None:
    """If the output of a suggested command exists, the report suggests ``--existing replace``."""
    shutil.copyfile(FIXTURES / "tf2.15/rnn.h5", models / "r.h5")
    time.sleep(MOMENT)
    arguments = ("audit", "models/r.h5", "--target", "keras3", "--format", "json")
    assert "--existing" not in run(*arguments, "--cache", "cache").out
    shutil.copyfile(MIXED_KERAS, models / "r.keras3.h5")
    shutil.copyfile(MIXED_KERAS, models / "r.keras3.keras")
    time.sleep(MOMENT)
    ended = run(*arguments, "--cache", "cache")
    assert ended.out == run(*arguments).out
    assert '"--existing", "replace"' in ended.out


@pytest.mark.parametrize(
    "options",
    [("--target", "keras3"), ("--select", "PT1"), ("--weights",), ("--limit", "layers=2")],
    ids=" ".join,
)
def test_options_and_limits_count(options: tuple[str, ...]) -> None:
    run("audit", "models", "--jobs", "1", "--cache", "cache")
    arguments = ("audit", "models", "--jobs", "1", "--format", "json", *options)
    ended = run(*arguments, "--cache", "cache", "-v")
    assert "0 of 6 results" in ended.err
    assert ended.out == run(*arguments).out


def test_other_code_counts(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of other code are not reused, because a checkout can change without its version."""
    came_from_cache(models)
    monkeypatch.setattr(caches, "_code", lambda: ["other"])
    assert came_from_cache(models) == (0, 6)


# What is not kept


def test_fresh_files_are_not_kept(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of just modified files are not stored: another change could have the same time."""
    monkeypatch.setattr(listings, "SETTLING_NS", 10**12)
    came_from_cache(models)
    assert entries() == []


def test_model_that_changes_during_the_read_is_not_stored(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = audit.audit_input

    def change(found: Any, options: Any) -> Any:
        done = original(found, options)
        (models / "m0.h5").touch()
        return done

    monkeypatch.setattr(audit, "audit_input", change)
    cache = ResultCache(Path("cache"))
    list(
        parallel.run_all(audit.TASK, list(discovery.inputs(["models/m0.h5"])), FAST, 1, cache=cache)
    )
    assert entries() == []


def test_failures_are_not_kept(models: Path) -> None:
    """Failures are not stored, because many depend on the machine."""
    os.truncate(models / "m0.h5", 3000)
    time.sleep(MOMENT)
    assert came_from_cache(models) == (0, 6)
    assert came_from_cache(models) == (5, 6)


def test_formats_that_refer_to_other_files_are_not_cached(tmp_path: Path) -> None:
    directory = tmp_path / "web"
    directory.mkdir()
    content = {"format": "layers-model", "modelTopology": {}, "weightsManifest": []}
    (directory / "model.json").write_text(json.dumps(content), encoding="utf-8")
    time.sleep(MOMENT)
    came_from_cache(directory)
    assert came_from_cache(directory) == (0, 1)


def test_linked_directory_in_a_model_is_not_followed(tmp_path: Path) -> None:
    """A model with a linked directory is read again: the cache does not track its target."""
    small_saved_model(tmp_path / "apart" / "a")
    (tmp_path / "apart" / "a" / "assets.extra").symlink_to("/", target_is_directory=True)
    time.sleep(MOMENT)
    came_from_cache(Path("apart"))
    assert came_from_cache(Path("apart")) == (0, 1)


@pytest.mark.parametrize("options", [("--fix",), ("--diff",)])
def test_fixes_read_all_models(options: tuple[str, ...]) -> None:
    """``--fix`` reads all models and prints a note about it."""
    ended = run("audit", "models", "--jobs", "1", "--cache", "cache", *options)
    assert "note: --fix and --diff read all models, so --cache has no effect." in ended.err
    assert not Path("cache").exists()


# Entries that are damaged or hostile


HOSTILE: Final = {
    "empty": b"",
    "no checksum": b"policytool-cache 1 \nnull",
    "other text": b"\xff\xfe" * 99,
    "a pickle": b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.",
    "no end of line": b"policytool-cache 1 " + b"0" * 10_000,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_damaged_entries_are_computed_again(models: Path, content: bytes) -> None:
    came_from_cache(models)
    for entry in entries():
        entry.write_bytes(content)
    assert came_from_cache(models) == (0, 6)
    assert came_from_cache(models) == (6, 6)


@pytest.mark.parametrize("bit", [0, 7])
def test_any_changed_byte_is_noticed(models: Path, bit: int) -> None:
    came_from_cache(models)
    for number, entry in enumerate(entries()):
        data = bytearray(entry.read_bytes())
        data[number * len(data) // 6] ^= 1 << bit
        entry.write_bytes(data)
    assert came_from_cache(models) == (0, 6)


@pytest.mark.parametrize(
    "body",
    ["{}", "[]", "1e999", "[" * 100_000, '{"path": 1}', '{"path": "a", "layers": "many"}', "{", ""],
    ids=lambda body: body[:20],
)
def test_forged_entries_of_another_type_are_no_results(models: Path, body: str) -> None:
    """A forged entry with a correct checksum and another type is not used."""
    cache = ResultCache(Path("cache"))
    results = cache.results(audit.TASK, FAST)
    assert results is not None
    [result] = discovery.inputs([str(models / "m0.h5")])
    key = results.entry(result).key
    assert key is not None
    cache.write(key, body.encode())
    assert results.entry(result).exists
    assert results.find(key) is None


def test_forged_entry_is_made_again(models: Path) -> None:
    """A forged entry is replaced with a new result, in a separate process."""
    came_from_cache(models)
    entry = entries()[0]
    checksum = caches.checksum(entry.parent.name + entry.name, b"{}")
    entry.write_bytes(b"policytool-cache 1 " + checksum + b"\n{}")
    cache = ResultCache(Path("cache"))
    assert audited(models, cache) == audited(models)
    assert (cache.hits, cache.requested) == (5, 6)
    assert came_from_cache(models) == (6, 6)


def test_entry_under_another_name_is_not_used(models: Path) -> None:
    """An entry under another name is not used, because its checksum includes the name."""
    came_from_cache(models)
    first, second, *_ = entries()
    shutil.copyfile(first, second)
    assert came_from_cache(models) == (5, 6)


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "zero"])
def test_entry_that_is_no_file_is_not_used(models: Path, kind: str) -> None:
    came_from_cache(models)
    entry = entries()[0]
    entry.unlink()
    if kind == "fifo":
        os.mkfifo(entry)
    elif kind == "directory":
        entry.mkdir()
    else:
        entry.symlink_to("/dev/zero" if kind == "zero" else "nothing")
    assert came_from_cache(models)[0] == 5


def test_entry_that_is_too_large_is_not_read(models: Path) -> None:
    """An entry above the size limit is neither read nor kept."""
    came_from_cache(models)
    for entry in entries():
        with entry.open("ab") as file:
            file.truncate(2**40)
    assert came_from_cache(models) == (0, 6)


# The directory


def test_directory_is_private() -> None:
    """The cache directory is private, and missing parents are created."""
    run("audit", "models", "--jobs", "1", "--cache", "new/cache")
    assert stat.S_IMODE(Path("new/cache").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in Path("new/cache").rglob("??")} == {0o700}


def test_cache_among_the_models_is_no_input(models: Path) -> None:
    """A cache directory next to models is neither an input nor a skipped file."""
    plain = run("audit", "models", "--jobs", "1", "--format", "json").out
    for _ in range(3):
        cached = run("audit", "models", "--jobs", "1", "--format", "json", "--cache", models)
        assert cached.out == plain


def _file(place: Path) -> None:
    place.write_bytes(b"")


def _below_a_file(place: Path) -> None:
    place.parent.write_bytes(b"")


def _folder_is_a_file(place: Path) -> None:
    place.mkdir()
    (place / ".policytool-cache").write_bytes(b"")


def _folder_is_a_link(place: Path) -> None:
    place.mkdir()
    (place / ".policytool-cache").symlink_to(Path.cwd(), target_is_directory=True)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("place", _file),
        ("file/place", _below_a_file),
        ("place", _folder_is_a_file),
        ("place", _folder_is_a_link),
        ("n" * 300, lambda _: None),
    ],
)
def test_unusable_cache_path_gives_a_one_line_error(name: str, make: Any) -> None:
    """An unusable path is a one-line error with exit code 3 before any model is read."""
    make(Path(name))
    ended = run("audit", "models", "--jobs", "1", "--cache", name)
    assert ended.code == 3
    assert ended.out == ""
    assert ended.err.startswith(f"error: --cache {name} cannot be used: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("command", ["inspect", "audit"])
def test_value_is_required(command: str) -> None:
    """``--cache`` requires a value that is not empty."""
    assert run(command, "models", "--cache").code == 2
    ended = run(command, "models", "--cache", "")
    assert ended.code == 2
    assert ended.err == "error: --cache has an empty value. Specify a directory.\n"


def test_migrate_has_no_cache() -> None:
    """``migrate`` has no ``--cache``, because it writes files."""
    assert run("migrate", "models/m0.h5", "--cache", "cache").code == 2


def test_setting_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is shown with its source."""
    monkeypatch.setenv("POLICYTOOL_CACHE", "cache")
    assert 'cache = "cache"  # $POLICYTOOL_CACHE' in run("audit", "--show-settings").out


def test_full_disk_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk for the cache is a warning, and the report is complete."""

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic, "write_all", fail)
    ended = run("audit", "models", "--jobs", "1", "--format", "json", "--cache", "cache")
    assert ended.out == run("audit", "models", "--jobs", "1", "--format", "json").out
    assert (
        "warning: --cache cache could not keep all results: No space left on device." in ended.err
    )
    assert entries() == []


def test_group_that_is_a_link_is_not_followed(models: Path, tmp_path: Path) -> None:
    """No file is written or removed in the target of a linked group directory."""
    came_from_cache(models)
    elsewhere = tmp_path / "elsewhere"
    entry = entries()[0]
    entry.parent.rename(elsewhere)
    entry.parent.symlink_to(elsewhere, target_is_directory=True)
    before = {path: path.read_bytes() for path in elsewhere.iterdir()}
    with limits.override({"cache-bytes": 1}):
        ResultCache(Path("cache")).trim()
    assert {path: path.read_bytes() for path in elsewhere.iterdir()} == before


# Its size


def test_least_recently_used_results_are_removed(models: Path) -> None:
    """A run removes the least recently used results until 90 % of the size limit is used."""
    came_from_cache(models)
    every = entries()
    sizes = [entry.stat().st_size for entry in every]
    now = time.time()
    for age, entry in enumerate(every):
        os.utime(entry, (now - age * 100, now - age * 100))
    foreign = [
        every[0].with_name("notes.txt"),
        Path("cache/.policytool-cache/keep"),
        Path("cache/x"),
    ]
    for place in foreign:
        place.write_bytes(b"x" * 10_000)
    most = sum(sizes) - 1
    with limits.override({"cache-bytes": most}):
        ResultCache(Path("cache")).trim()
    left = [entry for entry in every if entry.exists()]
    count = len(left)
    assert left == every[:count]
    assert sum(sizes[:count]) <= most - most // 10 < sum(sizes[: count + 1])
    assert all(place.exists() for place in foreign)


def test_cache_limit_bounds_the_size_after_a_run() -> None:
    """The size limit is an option of each command that reads models."""
    run("audit", "models", "--jobs", "1", "--cache", "cache", "--limit", "cache-bytes=400K")
    assert entries()
    run("audit", "models", "--jobs", "1", "--cache", "cache", "--limit", "cache-bytes=2")
    assert entries() == []


def test_use_is_noted_once_a_day(models: Path) -> None:
    """The use of a result is recorded once a day, so that used results are kept."""
    came_from_cache(models)
    recent, old, *_ = entries()
    times = {recent: time.time() - 3_600, old: time.time() - 2 * 86_400}
    for entry, used in times.items():
        os.utime(entry, (used, used))
    assert came_from_cache(models) == (6, 6)
    assert recent.stat().st_mtime == pytest.approx(times[recent])
    assert old.stat().st_mtime > times[old] + 86_400


def test_drafts_of_killed_runs_are_removed(models: Path) -> None:
    """Temporary files of killed runs are removed after an hour."""
    came_from_cache(models)
    entry = entries()[0]
    old, new = (entry.with_name(f".{entry.name}.{digit * 16}") for digit in "ab")
    for draft in (old, new):
        draft.write_bytes(b"half")
    os.utime(old, (0, 0))
    ResultCache(Path("cache")).trim()
    assert not old.exists()
    assert new.exists()


# Several runs


@pytest.fixture
def together() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Return processes that are ended after the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for item in started:
        item.kill()
        item.wait()


@THOROUGH
def test_several_runs_share_a_cache(together: list[subprocess.Popen[bytes]]) -> None:
    """Each of several runs has its complete report while entries are removed."""
    time.sleep(2.1)  # these processes have the real bound
    plain = run("audit", "models", "--format", "json", "--jobs", "1").out.encode()
    for number in range(2):
        limit = "cache-bytes=1G" if number % 2 else "cache-bytes=600K"
        arguments = ("audit", "models", "--format", "json", "--jobs", "2", "--cache", "cache")
        together.append(
            subprocess.Popen(
                [sys.executable, "-m", "policytool", *arguments, "--limit", limit],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
    ended = [item.communicate(timeout=60) for item in together]
    assert [out for out, _ in ended] == [plain] * 2, [err for _, err in ended]
    assert len(entries()) == 6


def test_entry_that_vanishes_is_made_again(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that another run removes after it was found is computed again."""
    came_from_cache(models)
    original: Any = caches.CachedResults.entry

    def vanish(self: Any, item: Any) -> caches.CacheEntry:
        result: caches.CacheEntry = original(self, item)
        key = result.key
        if key is not None and entries()[0].name == key[2:]:
            (Path("cache/.policytool-cache") / key[:2] / key[2:]).unlink()
        return result

    with monkeypatch.context() as patched:
        patched.setattr(caches.CachedResults, "entry", vanish)
        came_from_cache(models)
    assert came_from_cache(models) == (6, 6)


def test_tasks_that_write_keep_no_results() -> None:
    """Results of tasks that write files are not stored: they depend on more than the model."""
    assert inspect.TASK.caching is not None
    assert fix.TASK.caching is None
    assert remote_migration.TASK.caching is None
