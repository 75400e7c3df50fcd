"""Whatever fails, and whenever: the original byte for byte, and nothing else in the directory."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import random
import resource
import shutil
import signal
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

from policytool.formats import rewriting
from policytool.formats.edits import WriteOptions
from policytool.formats.rewriting import Changes
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic
from tests.conftest import (
    DRAFT_KINDS,
    MIXED_H5,
    MIXED_JSON,
    MIXED_KERAS,
    MIXED_SAVEDMODEL,
    MIXED_TFJS,
    MIXED_YAML,
    UNPACKED,
)
from tests.helpers.changes import all_changes, document_of, dtype_edit, edit, held
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled
from tests.helpers.small_models import h5_model, keras_zip, sequential

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = THOROUGH


ONE_FILE: Final = FIXTURES / "tf2.15/global_mixed_float16"
"""
A SavedModel whose metadata stands in keras_metadata.pb alone; that of :data:`MIXED_SAVEDMODEL`
stands in two files.
"""

CALLS: Final = (
    "pwrite",
    "fsync",
    "link",
    "rename",
    "replace",
    "copy_file_range",
    "ftruncate",
    "fchmod",
    "mkdir",
    "open",
    "pread",
    "preadv",
)
"""Where the system can fail; ``os`` functions that the writers and drafts call."""


@dataclass(frozen=True)
class Scenario:
    """One way to call the writers."""

    sample: Path
    edits_only: bool = False
    elsewhere: bool = False
    """Whether the output goes to a directory of its own."""

    in_place: bool = False
    backup: bool = True
    overwrite: bool = False

    @property
    def replaces_directory(self) -> bool:
        """Whether a whole directory takes the place of another, and no backup is kept."""
        return self.in_place and not self.backup and self.sample.is_dir()

    def prepare(self, directory: Path) -> Path:
        """Put the model, and what it shall not harm, in an empty directory."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        source = (
            directory / "model" / self.sample.name
            if self.elsewhere
            else directory / self.sample.name
        )
        if self.elsewhere:
            shutil.copytree(self.sample.parent, source.parent)
            (directory / "new").mkdir()
            return source
        if self.sample.is_dir():
            shutil.copytree(self.sample, source)
        else:
            shutil.copyfile(self.sample, source)
        if self.overwrite:
            (directory / f"other{source.suffix}").write_bytes(b"what was there")
        return source

    def run(self, source: Path) -> rewriting.Written:
        """Write."""
        document = document_of(source)
        changes = all_changes(source)
        return rewriting.write(
            source,
            source.parent.parent / "new/model.json"
            if self.elsewhere
            else source.with_name(f"other{source.suffix}"),
            Changes(edits=changes.edits, casts=() if self.edits_only else changes.casts),
            document_format=document.format,
            options=WriteOptions(
                in_place=self.in_place, backup=self.backup, overwrite=self.overwrite
            ),
        )


SCENARIOS: Final = {
    "h5-new": Scenario(MIXED_H5, edits_only=True),
    "h5-in-place": Scenario(MIXED_H5, edits_only=True, in_place=True),
    "h5-no-backup": Scenario(MIXED_H5, edits_only=True, in_place=True, backup=False),
    "h5-overwrite": Scenario(MIXED_H5, edits_only=True, overwrite=True),
    "h5-cast": Scenario(MIXED_H5, in_place=True),
    "keras-new": Scenario(MIXED_KERAS, edits_only=True),
    "keras-cast": Scenario(MIXED_KERAS, in_place=True),
    "directory-new": Scenario(UNPACKED),
    "directory-in-place": Scenario(UNPACKED, in_place=True),
    "directory-one-file": Scenario(UNPACKED, edits_only=True, in_place=True),
    "json": Scenario(MIXED_JSON, in_place=True),
    "savedmodel-one-file": Scenario(ONE_FILE, in_place=True),
    "savedmodel-one-file-new": Scenario(ONE_FILE),
    "savedmodel-two-files": Scenario(MIXED_SAVEDMODEL, in_place=True),
    "savedmodel-two-files-no-backup": Scenario(MIXED_SAVEDMODEL, in_place=True, backup=False),
    "savedmodel-two-files-new": Scenario(MIXED_SAVEDMODEL),
    "keras-metadata": Scenario(ONE_FILE / "keras_metadata.pb", in_place=True),
    "yaml-overwrite": Scenario(MIXED_YAML, overwrite=True),
    "yaml-in-place": Scenario(MIXED_YAML, in_place=True),
    "tfjs-in-place": Scenario(MIXED_TFJS, edits_only=True, in_place=True),
    "tfjs-elsewhere": Scenario(MIXED_TFJS, edits_only=True, elsewhere=True),
}


class Faults:
    """Counts the calls of the system, and lets one of them fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self.failing = -1
        self.error: BaseException = OSError()
        for name in CALLS:
            if hasattr(os, name):
                monkeypatch.setattr(os, name, self._wrapped(getattr(os, name)))

    def _wrapped(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.made += 1
            if self.made == self.failing:
                raise self.error
            return function(*arguments, **named)

        return call

    def start(self, failing: int, error: BaseException) -> None:
        """Count from now on, and fail at this call."""
        self.made, self.failing, self.error = 0, failing, error


def chosen(total: int) -> list[int]:
    """
    Return which of so many calls are made to fail: some forty, and each of the last, which publish.
    """
    return sorted({*range(1, total + 1, 1 + total // 40), *range(max(1, total - 30), total + 1)})


def fault(number: int) -> BaseException:
    """Return what a call fails with: a full disk, a failing one, and Ctrl-C, in turn."""
    return (OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "failing"), KeyboardInterrupt())[
        number % 3
    ]


@SLOW
@pytest.mark.parametrize(
    ("name", "draft_kind"),
    sampled("faults in rewriting", itertools.product(SCENARIOS, DRAFT_KINDS), share=3),
    indirect=["draft_kind"],
)
def test_a_failure_at_any_call_changes_nothing(
    name: str, draft_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A full disk, a failing one, and Ctrl-C, at each call of the system in turn; a sample of the
    scenarios.
    """
    del draft_kind
    scenario = SCENARIOS[name]
    directory = tmp_path / "models"
    source = scenario.prepare(directory)
    faults = Faults(monkeypatch)
    faults.start(-1, OSError())
    scenario.run(source)
    total, after = faults.made, held(directory)
    assert total >= 10
    for failing in chosen(total):
        faults.start(-1, OSError())
        source = scenario.prepare(directory)
        before = held(directory)
        faults.start(failing, fault(failing))
        try:
            scenario.run(source)
        except (ModelFileError, KeyboardInterrupt) as raised:
            faults.start(-1, OSError())
            if (
                scenario.replaces_directory
                and isinstance(raised, KeyboardInterrupt)
                and held(directory) != before
            ):
                _assert_replaced(held(directory), before, after)
                continue
            assert held(directory) == before, failing
            if isinstance(raised, ModelFileError):
                assert raised.code in {
                    "no-space",
                    "write-failed",
                    "truncated",
                    "damaged-h5",
                    "unreadable",
                }, raised
        except OSError:  # while reading, before the writers are asked
            faults.start(-1, OSError())
            assert held(directory) == before
        else:
            faults.start(-1, OSError())
            names = {name for name in held(directory) if atomic.SUFFIX in name}
            assert (
                scenario.replaces_directory or not names
            )  # what is left of an old directory, the next run removes


def _assert_replaced(
    found: dict[str, bytes], before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    """
    Hold a directory that was replaced when Ctrl-C came: the new one is whole, and what is left of
    the old one is hidden, or its backup.
    """
    kept = {name: data for name, data in found.items() if not name.startswith(".")}
    olds = {name.replace("/", ".bak/", 1): data for name, data in before.items()}
    assert kept in (after, {**after, **olds})


@pytest.mark.parametrize(
    "name", [name for name, scenario in SCENARIOS.items() if scenario.in_place]
)
def test_at_every_instant_one_complete_copy_has_a_documented_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Before each call of the system, the model stands whole under its name or as its backup: whoever
    pulls the plug loses nothing.
    """
    scenario, directory = SCENARIOS[name], tmp_path / "models"
    source = scenario.prepare(directory)
    before = _named(source)
    scenario.run(source)
    after = {file: data for file, data in _named(source).items() if file in before}
    source = scenario.prepare(directory)
    whole: list[bool] = []
    looking = False

    def checked(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal looking
            if not looking:
                looking = True  # the check itself reads files
                model = {file: data for file, data in _named(source).items() if file in before}
                whole.append(
                    model in (before, after)
                    or _named(source.with_name(f"{source.name}.bak")) == before
                )
                looking = False
            return function(*arguments, **named)

        return call

    for call in CALLS:
        if hasattr(os, call):
            monkeypatch.setattr(os, call, checked(getattr(os, call)))
    scenario.run(source)
    monkeypatch.undo()
    assert len(whole) >= 10
    assert all(whole)


def _named(path: Path) -> dict[str, bytes]:
    """Return the files of a model, by their path in it."""
    return held(path) if path.is_dir() else {"": path.read_bytes()} if path.is_file() else {}


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Make a model that takes a moment to write."""
    path = h5_model(tmp_path / "large.h5", sequential())
    with h5py.File(path, "a") as file:
        file["model_weights/dense_a/dense_a/large:0"] = np.arange(2**19, dtype="float32")
    return path


@ALONE
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a child process")
@pytest.mark.parametrize("casts", [False, True])
def test_a_killed_process_leaves_the_original_or_the_new_file(casts: bool, large: Path) -> None:  # noqa: FBT001
    """Killed at random moments; what lies around has a hidden name, and the next run removes it."""
    directory, before = large.parent, large.read_bytes()
    changes = all_changes(large)
    wanted = Changes(edits=changes.edits, casts=changes.casts if casts else ())
    expected = rewriting.write(large, directory / "expected.h5", wanted, document_format="h5")
    after = expected.target.read_bytes()
    expected.target.unlink()
    longest = 1.5 * (expected.write_seconds + expected.compare_seconds)
    draw = random.Random(0)  # noqa: S311
    for _ in range(20):
        large.write_bytes(before)
        with contextlib.suppress(FileNotFoundError):
            Path(f"{large}.bak").unlink()
        kill_after(
            draw.uniform(0, longest),
            lambda: rewriting.write(
                large, large, wanted, document_format="h5", options=WriteOptions(in_place=True)
            ),
        )
        atomic.remove_stale(directory)
        found = held(directory)
        assert found.keys() <= {"large.h5", "large.h5.bak"}
        assert found["large.h5"] in {before, after}
        assert found.get("large.h5.bak", before) == before


def kill_after(seconds: float, work: Callable[[], object]) -> None:
    """Do something in a child process that is killed after so many seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # a child that only writes needs none of this process's threads
        child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@ALONE
@pytest.mark.parametrize("casts", [False, True])
@pytest.mark.parametrize("format_", ["h5", "keras"])
def test_a_file_that_may_not_grow_is_told_as_a_full_disk(
    casts: bool,  # noqa: FBT001
    format_: str,
    tmp_path: Path,
) -> None:
    """The limit of the shell's ``ulimit -f`` behaves like a full disk."""
    path = tmp_path / f"model.{format_}"
    _ = h5_model(path, sequential()) if format_ == "h5" else keras_zip(path)
    before, changes = held(tmp_path), all_changes(path)
    with largest_file(500), pytest.raises(ModelFileError) as caught:
        rewriting.write(
            path,
            path,
            Changes(edits=changes.edits, casts=changes.casts if casts else ()),
            document_format=format_,
            options=WriteOptions(in_place=True),
        )
    assert caught.value.code == "no-space"
    assert held(tmp_path) == before


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes everywhere"
)
def test_a_directory_that_is_not_writable_is_told(tmp_path: Path) -> None:
    """The sentence names the directory."""
    path = h5_model(tmp_path / "model.h5", sequential())
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(ModelFileError) as caught:
            rewriting.write(
                path,
                path,
                all_changes(path),
                document_format="h5",
                options=WriteOptions(in_place=True),
            )
    finally:
        tmp_path.chmod(0o700)
    assert caught.value.code == "not-writable"


@pytest.mark.parametrize(
    "sample", [MIXED_H5, MIXED_KERAS, MIXED_JSON, MIXED_YAML], ids=["h5", "keras", "json", "yaml"]
)
@pytest.mark.parametrize("casts", [False, True])
def test_a_draft_that_does_not_read_back_is_refused(
    sample: Path,
    casts: bool,  # noqa: FBT001
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bytes that change between writing and comparing are found, wherever a value lies."""
    path = tmp_path / sample.name
    shutil.copyfile(sample, path)
    before, changes, document = held(tmp_path), all_changes(path), document_of(path)
    wanted = Changes(edits=changes.edits, casts=changes.casts if casts else ())
    good = rewriting.write(
        path, tmp_path / "good", wanted, document_format=document.format
    ).target.read_bytes()
    (tmp_path / "good").unlink()
    edited = str(changes.edits[0].after).encode()
    for place in (good.index(edited), *places_of_values(good)):

        def spoil(draft: atomic.Draft, place: int = place) -> None:
            with draft.path.open("r+b") as stream:
                stream.seek(place)
                stream.write(bytes([good[place] ^ 1]))

        monkeypatch.setattr(atomic.Draft, "flush", spoil)
        with pytest.raises(ModelFileError) as caught:
            rewriting.write(
                path,
                path,
                wanted,
                document_format=document.format,
                options=WriteOptions(in_place=True),
            )
        monkeypatch.undo()
        assert caught.value.code in {"write-differs", "write-failed"}
        assert held(tmp_path) == before


def places_of_values(written: bytes) -> list[int]:
    """Return where the first and the last byte of each tensor of a written file lie."""
    if b"\x89HDF" not in written:
        return []
    start = written.index(b"\x89HDF")
    found: list[int] = []
    with h5py.File(io.BytesIO(written[start:])) as file:
        file.visititems(
            lambda _, item: found.extend(_ends(item)) if isinstance(item, h5py.Dataset) else None
        )
    assert found
    return [start + place for place in found]


def _ends(dataset: h5py.Dataset) -> list[int]:
    first = dataset.id.get_offset()
    return [] if first is None else [first, first + dataset.id.get_storage_size() - 1]


def test_a_source_that_changes_meanwhile_is_not_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read would not be what is replaced."""
    path = h5_model(tmp_path / "model.h5", sequential())
    changes = all_changes(path)

    def touch(draft: atomic.Draft) -> None:
        del draft
        os.utime(path, (1, 1))

    monkeypatch.setattr(atomic.Draft, "flush", touch)
    with pytest.raises(ModelFileError) as caught:
        rewriting.write(
            path, path, changes, document_format="h5", options=WriteOptions(in_place=True)
        )
    assert caught.value.code == "source-changed"
    assert list(held(tmp_path)) == ["model.h5"]


def test_a_plan_for_another_file_is_refused(tmp_path: Path) -> None:
    """Another value than the plan's, a part and a tensor that are not there."""
    path = h5_model(tmp_path / "model.h5", sequential())
    before = held(tmp_path)
    cast = all_changes(path).casts[0]
    tensor = type(cast)(
        tensor=("other",), path="a", before=cast.before, after=cast.after, reason=""
    )
    dtype = type(cast)(tensor=cast.tensor, path="a", before="float16", after="float32", reason="")
    for changes in (
        Changes(edits=(edit("model_config", "/config/name", "other", "new"),)),
        Changes(edits=(edit("training_config", "/loss", "mse", "mae"),)),
        Changes(casts=(tensor,)),
        Changes(casts=(dtype,)),
    ):
        with pytest.raises(ModelFileError) as caught:
            rewriting.write(path, tmp_path / "new.h5", changes, document_format="h5")
        assert caught.value.code == "source-changed"
        assert held(tmp_path) == before
    assert dtype_edit(document_of(path)) is not None


@pytest.mark.parametrize("name", ["h5-in-place", "keras-cast", "savedmodel-one-file", "json"])
def test_a_backup_that_an_interrupted_run_made_is_no_hindrance(name: str, tmp_path: Path) -> None:
    """
    It is the original, so the next run needs no --overwrite; any other file of that name is one to
    be asked about.
    """
    scenario = SCENARIOS[name]
    source = scenario.prepare(tmp_path / "models")
    expected = scenario.run(source)
    after = held(source.parent)
    source = scenario.prepare(tmp_path / "models")
    replaced = expected.target
    os.link(replaced, replaced.with_name(f"{replaced.name}.bak"))
    scenario.run(source)
    assert held(source.parent) == after


def test_shards_stay_where_someone_else_made_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Two copy one model to one directory: the second takes the first's shards as they are, so the
    first must not take them away when it comes too late.
    """
    scenario = SCENARIOS["tfjs-elsewhere"]
    source = scenario.prepare(tmp_path / "models")
    new = tmp_path / "models/new"
    publish = atomic.Draft.publish

    def overtaken(draft: atomic.Draft, target: Path, **how: Any) -> None:
        if target.name == "model.json":
            target.write_bytes(b"theirs")
        publish(draft, target, **how)

    monkeypatch.setattr(atomic.Draft, "publish", overtaken)
    with pytest.raises(ModelFileError) as caught:
        scenario.run(source)
    assert caught.value.code == "target-exists"
    shards = {name for name in held(source.parent) if name.endswith(".bin")}
    assert shards
    assert set(held(new)) == {"model.json", *shards}
    assert held(new)["model.json"] == b"theirs"


def test_shards_that_someone_takes_away_meanwhile_are_missed(tmp_path: Path) -> None:
    """A model whose shards lie there already is not published without them."""
    scenario = SCENARIOS["tfjs-elsewhere"]
    source = scenario.prepare(tmp_path / "models")
    new = tmp_path / "models/new"
    for name, data in held(source.parent).items():
        if name.endswith(".bin"):
            (new / name).write_bytes(data)

    def take_away(_: Path) -> None:
        for file in new.glob("*.bin"):
            file.unlink()

    with pytest.raises(ModelFileError) as caught:
        rewriting.write(
            source,
            new / "model.json",
            Changes(edits=all_changes(source).edits),
            document_format="tfjs",
            options=WriteOptions(verify=take_away),
        )
    assert caught.value.code == "write-failed"
    assert held(new) == {}
