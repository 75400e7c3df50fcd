"""
A failure at any time while a model is rewritten or created leaves the original unchanged and no
other file in the directory.
"""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
import resource
import shutil
import stat
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import h5py
import pytest

from policytool.formats import creating, format_detection, rewriting
from policytool.formats.edits import Content, WriteOptions
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
from tests.helpers.contents import copy_of, placed
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import sampled
from tests.helpers.small_models import h5_model, sequential

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from policytool.formats.edits import Written

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
class Scenario(ABC):
    """One way to call the writers."""

    sample: Path
    in_place: bool = False
    backup: bool = True
    overwrite: bool = False

    codes: ClassVar[frozenset[str]]
    """What a failing call of the system is reported as."""

    spoiled: ClassVar[frozenset[str]]
    """What a changed byte of a draft is reported as."""

    @property
    def replaces_directory(self) -> bool:
        """Whether a directory replaces another directory without a backup."""
        return self.in_place and not self.backup and self.sample.is_dir()

    def prepare(self, directory: Path) -> Path:
        """Copy the model, and files that must not change, into an empty directory."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        source = directory / self.sample.name
        (shutil.copytree if self.sample.is_dir() else shutil.copyfile)(self.sample, source)
        if self.overwrite:
            self.target(source).write_bytes(b"what was there")
        return source

    @abstractmethod
    def target(self, source: Path) -> Path:
        """Return the path of the new file."""

    @abstractmethod
    def run(self, source: Path, verify: Callable[[Path], None] | None = None) -> Written:
        """Write the new model."""

    @abstractmethod
    def texts(self, source: Path) -> tuple[bytes, ...]:
        """Return texts that the written file contains and that are compared."""

    def options(self, verify: Callable[[Path], None] | None) -> WriteOptions:
        """Return the options of the writers."""
        return WriteOptions(
            in_place=self.in_place, backup=self.backup, overwrite=self.overwrite, verify=verify
        )


@dataclass(frozen=True)
class Rewriting(Scenario):
    """An edit of a dtype, and casts of all tensors."""

    edits_only: bool = False
    elsewhere: bool = False
    """Whether the output goes to a directory of its own."""

    codes = frozenset({"no-space", "write-failed", "truncated", "damaged-h5", "unreadable"})
    spoiled = frozenset({"write-differs", "write-failed"})

    def prepare(self, directory: Path) -> Path:
        """Copy the model, and files that must not change, into an empty directory."""
        if not self.elsewhere:
            return super().prepare(directory)
        shutil.rmtree(directory, ignore_errors=True)
        source = directory / "model" / self.sample.name
        shutil.copytree(self.sample.parent, source.parent)
        (directory / "new").mkdir()
        return source

    def target(self, source: Path) -> Path:
        """Return the path of the new file."""
        if self.elsewhere:
            return source.parent.parent / "new/model.json"
        return source.with_name(f"other{source.suffix}")

    def run(self, source: Path, verify: Callable[[Path], None] | None = None) -> Written:
        """Write the new model."""
        changes = all_changes(source)
        return rewriting.write(
            source,
            self.target(source),
            Changes(edits=changes.edits, casts=() if self.edits_only else changes.casts),
            document_format=document_of(source).format,
            options=self.options(verify),
        )

    def texts(self, source: Path) -> tuple[bytes, ...]:
        """Return the new dtype."""
        return (str(all_changes(source).edits[0].after).encode(),)


@dataclass(frozen=True)
class Creating(Scenario):
    """The creation of a copy of a sample, or of a model with its values in another container."""

    container: str = ""

    codes = Rewriting.codes | {"not-rewritable", "write-differs"}
    # The last two where reading the source, or the draft, fails within libhdf5, which knows no
    # reasons.
    spoiled = frozenset({"write-differs"})

    def target(self, source: Path) -> Path:
        """Return the path of the new file."""
        return source.with_name("other")

    def run(self, source: Path, verify: Callable[[Path], None] | None = None) -> Written:
        """Create the new model."""
        if self.container:
            document = format_detection.document(source, source.name)
            stored = document.tensors or [
                node.variable for node in document.nodes.values() if node.variable is not None
            ]
            placements = tuple(
                placed(tensor, path=(f"v{number}",))
                for number, tensor in enumerate(stored)
                if tensor.dtype == "float32"
            )
            content = Content(
                container=self.container,
                config=sequential(),
                keras_version="2.15.0",
                placements=placements,
            )
        else:
            document, content = copy_of(source)
        return creating.build(
            source, document, self.target(source), content, options=self.options(verify)
        )

    def texts(self, source: Path) -> tuple[bytes, ...]:
        """Return a dtype, and the name of a variable or layer."""
        return (
            b"mixed_float16",
            b"dense_a/kernel:0" if source.suffix == ".h5" else b"probabilities",
        )


SCENARIOS: Final[dict[str, Scenario]] = {
    "h5-new": Rewriting(MIXED_H5, edits_only=True),
    "h5-in-place": Rewriting(MIXED_H5, edits_only=True, in_place=True),
    "h5-no-backup": Rewriting(MIXED_H5, edits_only=True, in_place=True, backup=False),
    "h5-overwrite": Rewriting(MIXED_H5, edits_only=True, overwrite=True),
    "h5-cast": Rewriting(MIXED_H5, in_place=True),
    "keras-new": Rewriting(MIXED_KERAS, edits_only=True),
    "keras-in-place": Rewriting(MIXED_KERAS, edits_only=True, in_place=True),
    "keras-cast": Rewriting(MIXED_KERAS, in_place=True),
    "directory-new": Rewriting(UNPACKED),
    "directory-in-place": Rewriting(UNPACKED, in_place=True),
    "directory-one-file": Rewriting(UNPACKED, edits_only=True, in_place=True),
    "json": Rewriting(MIXED_JSON, in_place=True),
    "savedmodel-one-file": Rewriting(ONE_FILE, in_place=True),
    "savedmodel-one-file-new": Rewriting(ONE_FILE),
    "savedmodel-two-files": Rewriting(MIXED_SAVEDMODEL, in_place=True),
    "savedmodel-two-files-no-backup": Rewriting(MIXED_SAVEDMODEL, in_place=True, backup=False),
    "savedmodel-two-files-new": Rewriting(MIXED_SAVEDMODEL),
    "keras-metadata": Rewriting(ONE_FILE / "keras_metadata.pb", in_place=True),
    "yaml-overwrite": Rewriting(MIXED_YAML, overwrite=True),
    "yaml-in-place": Rewriting(MIXED_YAML, edits_only=True, in_place=True),
    "yaml-cast": Rewriting(MIXED_YAML, in_place=True),
    "tfjs-in-place": Rewriting(MIXED_TFJS, edits_only=True, in_place=True),
    "tfjs-elsewhere": Rewriting(MIXED_TFJS, edits_only=True, elsewhere=True),
    "created-h5-new": Creating(MIXED_H5),
    "created-h5-in-place": Creating(MIXED_H5, in_place=True),
    "created-h5-no-backup": Creating(MIXED_H5, in_place=True, backup=False),
    "created-h5-overwrite": Creating(MIXED_H5, overwrite=True),
    "created-keras-new": Creating(MIXED_KERAS),
    "created-keras-in-place": Creating(MIXED_KERAS, in_place=True),
    "created-json-in-place": Creating(MIXED_JSON, in_place=True),
    "created-h5-to-keras": Creating(MIXED_H5, container="keras"),
    "created-keras-to-h5": Creating(MIXED_KERAS, container="h5", in_place=True),
    "created-savedmodel-to-h5": Creating(MIXED_SAVEDMODEL, container="h5"),
}


def scenarios(*names: str) -> pytest.MarkDecorator:
    """Return the parameters of a test of some scenarios."""
    return pytest.mark.parametrize("scenario", [SCENARIOS[name] for name in names], ids=names)


class Faults:
    """Counts the system calls and makes one of them fail."""

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
        """Start counting; the call with this number fails."""
        self.made, self.failing, self.error = 0, failing, error


def chosen(total: int) -> list[int]:
    """
    Return the numbers of the calls that fail: about forty of them, and each of the last calls,
    which publish the file.
    """
    return sorted({*range(1, total + 1, 1 + total // 40), *range(max(1, total - 30), total + 1)})


def fault(number: int) -> BaseException:
    """Return the failure of a call: full disk, I/O error or Ctrl-C, in turn."""
    return (OSError(errno.ENOSPC, "full"), OSError(errno.EIO, "failing"), KeyboardInterrupt())[
        number % 3
    ]


@SLOW
@pytest.mark.parametrize(
    ("name", "draft_kind"),
    sampled("faults of writers", itertools.product(SCENARIOS, DRAFT_KINDS), share=3),
    indirect=["draft_kind"],
)
def test_a_failure_at_any_call_changes_nothing(
    name: str, draft_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A full disk, an I/O error or Ctrl-C at any system call leaves the original unchanged, for a
    sample of the scenarios.
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
                assert raised.code in scenario.codes, raised
        except OSError:  # while the test reads the model that it changes
            faults.start(-1, OSError())
            assert isinstance(scenario, Rewriting)
            assert held(directory) == before
        else:
            faults.start(-1, OSError())
            names = {name for name in held(directory) if atomic.SUFFIX in name}
            assert (
                scenario.replaces_directory or not names
            )  # what is left of an old directory, the next run removes
            assert isinstance(scenario, Rewriting) or held(directory) == after


def _assert_replaced(
    found: dict[str, bytes], before: dict[str, bytes], after: dict[str, bytes]
) -> None:
    """
    Check that the new directory is complete after Ctrl-C, and that the remains of the old one are
    hidden or its backup.
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
    Before each system call the complete model exists under its name or as its backup, so that a
    power failure loses nothing.
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
    """Return the files of a model by relative path."""
    return held(path) if path.is_dir() else {"": path.read_bytes()} if path.is_file() else {}


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit the size of files to this number of bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@ALONE
@scenarios(
    *("h5-in-place", "h5-cast", "keras-in-place", "keras-cast"),
    *("created-h5-in-place", "created-keras-in-place", "created-json-in-place"),
)
def test_file_size_limit_is_reported_as_a_full_disk(scenario: Scenario, tmp_path: Path) -> None:
    """A file size limit (``ulimit -f``) is reported like a full disk."""
    source = scenario.prepare(tmp_path / "models")
    before = held(source.parent)
    with largest_file(500), pytest.raises(ModelFileError) as caught:
        scenario.run(source)
    assert caught.value.code == "no-space"
    assert held(source.parent) == before


@scenarios("h5-cast", "created-h5-new")
def test_directory_without_write_permission_is_reported(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = scenario.prepare(tmp_path / "models")

    def refuse(target: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))

    monkeypatch.setattr(atomic.Draft, "beside", refuse)
    with pytest.raises(ModelFileError) as caught:
        scenario.run(source)
    assert caught.value.code == "not-writable"
    assert held(source.parent).keys() == {source.name}


@scenarios(
    *("h5-in-place", "h5-cast", "keras-in-place", "keras-cast", "json"),
    *("yaml-in-place", "yaml-cast", "created-h5-new", "created-keras-new"),
)
def test_draft_with_a_changed_byte_is_rejected(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A byte that changes between writing and comparing is an error at each place of the values."""
    source = scenario.prepare(tmp_path / "models")
    before = held(source.parent)
    texts = scenario.texts(source)
    new = replace(scenario, in_place=False).run(source).target
    good = new.read_bytes()
    new.unlink()
    for place in (*map(good.index, texts), *places_of_values(good)):

        def spoil(draft: atomic.Draft, place: int = place) -> None:
            with draft.path.open("r+b") as stream:
                stream.seek(place)
                stream.write(bytes([good[place] ^ 1]))

        monkeypatch.setattr(atomic.Draft, "flush", spoil)
        with pytest.raises(ModelFileError) as caught:
            scenario.run(source)
        monkeypatch.undo()
        assert caught.value.code in scenario.spoiled
        assert held(source.parent) == before


def places_of_values(written: bytes) -> list[int]:
    """Return the offsets of the first and last byte of each tensor in a written file."""
    if b"\x89HDF" not in written:
        return []
    start = written.index(b"\x89HDF")
    actual: list[int] = []
    with h5py.File(io.BytesIO(written[start:])) as file:
        file.visititems(
            lambda _, item: actual.extend(_ends(item)) if isinstance(item, h5py.Dataset) else None
        )
    assert actual
    return [start + place for place in actual]


def _ends(dataset: h5py.Dataset) -> list[int]:
    first = dataset.id.get_offset()
    return [] if first is None else [first, first + dataset.id.get_storage_size() - 1]


@scenarios("h5-cast", "created-h5-new")
@pytest.mark.parametrize("verifies", [False, True])
def test_source_that_changes_during_the_write_is_an_error(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, verifies: bool
) -> None:
    """The new file would not match it."""
    source = scenario.prepare(tmp_path / "models")

    def touch(_: object) -> None:
        os.utime(source, (1, 1))

    if not verifies:
        monkeypatch.setattr(atomic.Draft, "flush", touch)
    with pytest.raises(ModelFileError) as caught:
        scenario.run(source, touch if verifies else None)
    assert caught.value.code == "source-changed"
    assert held(source.parent).keys() == {source.name}


@scenarios("h5-new", "json", "created-h5-new", "created-json-in-place")
def test_exception_of_verify_ends_the_write(scenario: Scenario, tmp_path: Path) -> None:
    """
    An exception of ``verify``, which receives the complete file under its final name, ends the
    write.
    """
    source = scenario.prepare(tmp_path / "models")
    before = held(source.parent)

    def verify(path: Path) -> None:
        assert path.name == (source if scenario.in_place else scenario.target(source)).name
        assert isinstance(scenario, Rewriting) or (
            format_detection.document(path, "x").config
            == format_detection.document(source, "x").config
        )
        raise ModelFileError("x", "seen", "was seen")

    with pytest.raises(ModelFileError, match="was seen"):
        scenario.run(source, verify)
    assert held(source.parent) == before


def test_plan_for_another_file_is_rejected(tmp_path: Path) -> None:
    """A plan for another file is an error: another value, a missing part or a missing tensor."""
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
    An existing backup that equals the original, as after an interrupted run, is accepted; any other
    file with its name stays.
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


def test_shards_that_another_process_uses_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Shards are kept if another process uses them: of two processes that copy a model to a directory,
    the second reuses the first's shards, so the first must not remove them.
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


def test_shards_removed_during_the_write_prevent_the_output(tmp_path: Path) -> None:
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


def test_targets_that_exist(tmp_path: Path) -> None:
    """Only on request, and a directory is never replaced by a file."""
    source = Creating(MIXED_H5).prepare(tmp_path / "models")
    for sample, other in ((MIXED_H5, "other"), (MIXED_H5, f"{source.name}.bak")):
        source.with_name(other).write_bytes(b"what was there")
        before = held(source.parent)
        with pytest.raises(ModelFileError) as caught:
            Creating(sample, in_place=other != "other").run(source)
        assert caught.value.code == "target-exists"
        assert held(source.parent) == before
    directory = Creating(MIXED_SAVEDMODEL).prepare(tmp_path / "others")
    before = held(directory.parent)
    with pytest.raises(ModelFileError) as caught:
        Creating(MIXED_SAVEDMODEL, container="h5", in_place=True).run(directory)
    assert caught.value.code == "target-exists"
    assert held(directory.parent) == before


@scenarios("created-h5-overwrite", "created-savedmodel-to-h5")
def test_new_file_has_the_mode_of_the_source(scenario: Scenario, tmp_path: Path) -> None:
    """For a directory, the mode of its files, so that it is not executable."""
    source = scenario.prepare(tmp_path / "models")
    for file in [source] if source.is_file() else source.iterdir():
        if file.is_file():
            file.chmod(0o640)
    assert stat.S_IMODE(scenario.run(source).target.stat().st_mode) == 0o640
