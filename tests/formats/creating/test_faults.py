"""
Whatever fails while a file is built, and whenever: what was there byte for byte, and nothing else
in the directory.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import pytest

from policytool.formats import creating, format_detection
from policytool.formats.edits import WriteOptions
from policytool.formats.new_model import Content
from policytool.support.errors import ModelFileError
from policytool.support.files import atomic
from tests.conftest import DRAFT_KINDS, MIXED_H5, MIXED_JSON, MIXED_KERAS, MIXED_SAVEDMODEL
from tests.formats.rewriting.test_faults import (
    Faults,
    chosen,
    fault,
    kill_after,
    largest_file,
    places_of_values,
)
from tests.helpers.changes import held
from tests.helpers.contents import copy_of, placed
from tests.helpers.marks import ALONE, SLOW, THOROUGH
from tests.helpers.sampling import sampled
from tests.helpers.small_models import h5_model, sequential

if TYPE_CHECKING:
    from collections.abc import Callable

    from policytool.formats.edits import Written

pytestmark = THOROUGH


@dataclass(frozen=True)
class Scenario:
    """
    One way to call the builder: the copy of a sample, or a model with its values in another
    container.
    """

    sample: Path
    container: str = ""
    in_place: bool = False
    backup: bool = True
    overwrite: bool = False

    def prepare(self, directory: Path) -> Path:
        """Put the source, and what it shall not harm, in an empty directory."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        source = directory / self.sample.name
        (shutil.copytree if self.sample.is_dir() else shutil.copyfile)(self.sample, source)
        if self.overwrite:
            (directory / "other").write_bytes(b"what was there")
        return source

    def run(self, source: Path, verify: Callable[[Path], None] | None = None) -> Written:
        """Build."""
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
        target = source.with_name("other")
        return creating.build(
            source,
            document,
            target,
            content,
            options=WriteOptions(
                in_place=self.in_place, backup=self.backup, overwrite=self.overwrite, verify=verify
            ),
        )


SCENARIOS: Final = {
    "h5-new": Scenario(MIXED_H5),
    "h5-in-place": Scenario(MIXED_H5, in_place=True),
    "h5-no-backup": Scenario(MIXED_H5, in_place=True, backup=False),
    "h5-overwrite": Scenario(MIXED_H5, overwrite=True),
    "keras-new": Scenario(MIXED_KERAS),
    "keras-in-place": Scenario(MIXED_KERAS, in_place=True),
    "json-in-place": Scenario(MIXED_JSON, in_place=True),
    "h5-to-keras": Scenario(MIXED_H5, container="keras"),
    "keras-to-h5": Scenario(MIXED_KERAS, container="h5", in_place=True),
    "savedmodel-to-h5": Scenario(MIXED_SAVEDMODEL, container="h5"),
}
CODES: Final = {
    "no-space",
    "write-failed",
    "truncated",
    "damaged-h5",
    "unreadable",
    "not-rewritable",
    "write-differs",
}
"""
The last two where reading the source, or the draft, fails within libhdf5, which knows no reasons.
"""


@SLOW
@pytest.mark.parametrize(
    ("name", "draft_kind"),
    sampled("faults in creating", itertools.product(SCENARIOS, DRAFT_KINDS), share=3),
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
            assert held(directory) == before, failing
            assert isinstance(raised, KeyboardInterrupt) or raised.code in CODES, raised
        else:
            faults.start(-1, OSError())
            assert held(directory) == after


@ALONE
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a child process")
@pytest.mark.parametrize("container", ["h5", "keras"])
def test_a_killed_process_leaves_the_original_or_the_new_file(
    container: str, tmp_path: Path
) -> None:
    """Killed at random moments; what lies around has a hidden name, and the next run removes it."""
    source = h5_model(tmp_path / "model.h5", sequential())
    with h5py.File(source, "a") as file:
        file["model_weights/dense_a/dense_a/large:0"] = np.arange(2**19, dtype="float32")
    before = source.read_bytes()
    scenario = Scenario(source, container=container, in_place=True)
    written = scenario.run(source)
    after = source.read_bytes()
    longest = 1.5 * (written.write_seconds + written.compare_seconds)
    draw = random.Random(0)  # noqa: S311
    for _ in range(20):
        source.write_bytes(before)
        with contextlib.suppress(FileNotFoundError):
            Path(f"{source}.bak").unlink()
        kill_after(draw.uniform(0, longest), lambda: scenario.run(source))
        atomic.remove_stale(tmp_path)
        found = held(tmp_path)
        assert found.keys() <= {"model.h5", "model.h5.bak"}
        assert found["model.h5"] in {before, after}
        assert found.get("model.h5.bak", before) == before


@ALONE
@pytest.mark.parametrize(
    "scenario",
    [SCENARIOS["h5-in-place"], SCENARIOS["keras-in-place"], SCENARIOS["json-in-place"]],
    ids=["h5", "keras", "json"],
)
def test_a_file_that_may_not_grow_is_told_as_a_full_disk(
    scenario: Scenario, tmp_path: Path
) -> None:
    """The limit of the shell's ``ulimit -f`` behaves like a full disk."""
    source = scenario.prepare(tmp_path / "models")
    before = held(source.parent)
    with largest_file(500), pytest.raises(ModelFileError) as caught:
        scenario.run(source)
    assert caught.value.code == "no-space"
    assert held(source.parent) == before


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes everywhere"
)
def test_a_directory_that_is_not_writable_is_told(tmp_path: Path) -> None:
    """The sentence names the directory."""
    source = SCENARIOS["h5-new"].prepare(tmp_path / "models")
    source.parent.chmod(0o500)
    try:
        with pytest.raises(ModelFileError) as caught:
            SCENARIOS["h5-new"].run(source)
    finally:
        source.parent.chmod(0o700)
    assert caught.value.code == "not-writable"


def test_a_directory_that_takes_no_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user without rights meets it, whoever runs the tests."""
    source = SCENARIOS["h5-new"].prepare(tmp_path / "models")

    def refuse(target: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))

    monkeypatch.setattr(atomic.Draft, "beside", refuse)
    with pytest.raises(ModelFileError) as caught:
        SCENARIOS["h5-new"].run(source)
    assert caught.value.code == "not-writable"
    assert held(source.parent).keys() == {source.name}


@pytest.mark.parametrize("name", ["h5-new", "keras-new"])
def test_a_draft_that_does_not_read_back_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A byte that changes between writing and comparing is found, in each variable and in the config.
    """
    scenario = SCENARIOS[name]
    source = scenario.prepare(tmp_path / "models")
    before = held(source.parent)
    new = scenario.run(source).target
    good = new.read_bytes()
    new.unlink()
    for place in (
        good.index(b"mixed_float16"),
        good.index(b"dense_a/kernel:0" if name == "h5-new" else b"probabilities"),
        *places_of_values(good),
    ):

        def spoil(draft: atomic.Draft, place: int = place) -> None:
            with draft.path.open("r+b") as stream:
                stream.seek(place)
                stream.write(bytes([good[place] ^ 1]))

        monkeypatch.setattr(atomic.Draft, "flush", spoil)
        with pytest.raises(ModelFileError) as caught:
            scenario.run(source)
        monkeypatch.undo()
        assert caught.value.code == "write-differs"
        assert held(source.parent) == before


def test_a_source_that_changes_meanwhile_is_not_published(tmp_path: Path) -> None:
    """What was read would not be what the new file is made of."""
    source = SCENARIOS["h5-new"].prepare(tmp_path / "models")
    with pytest.raises(ModelFileError) as caught:
        SCENARIOS["h5-new"].run(source, verify=lambda _: os.utime(source, (1, 1)))
    assert caught.value.code == "source-changed"
    assert held(source.parent).keys() == {source.name}


@pytest.mark.parametrize("name", ["h5-new", "json-in-place"])
def test_what_verify_raises_ends_the_write(name: str, tmp_path: Path) -> None:
    """It gets a whole file under the name that it will have."""
    scenario = SCENARIOS[name]
    source = scenario.prepare(tmp_path / "models")
    before = held(source.parent)

    def verify(path: Path) -> None:
        assert path.name == (source.name if scenario.in_place else "other")
        assert (
            format_detection.document(path, "x").config
            == format_detection.document(source, "x").config
        )
        raise ModelFileError("x", "seen", "was seen")

    with pytest.raises(ModelFileError, match="was seen"):
        scenario.run(source, verify)
    assert held(source.parent) == before


def test_targets_that_exist(tmp_path: Path) -> None:
    """
    Neither a file, nor an older backup is replaced unless that is asked for, and a directory never
    by a file.
    """
    source = SCENARIOS["h5-overwrite"].prepare(tmp_path / "models")
    for sample, other in ((MIXED_H5, "other"), (MIXED_H5, f"{source.name}.bak")):
        source.with_name(other).write_bytes(b"what was there")
        before = held(source.parent)
        with pytest.raises(ModelFileError) as caught:
            Scenario(sample, in_place=other != "other").run(source)
        assert caught.value.code == "target-exists"
        assert held(source.parent) == before
    directory = Scenario(MIXED_SAVEDMODEL).prepare(tmp_path / "others")
    before = held(directory.parent)
    with pytest.raises(ModelFileError) as caught:
        Scenario(MIXED_SAVEDMODEL, container="h5", in_place=True).run(directory)
    assert caught.value.code == "target-exists"
    assert held(directory.parent) == before


@pytest.mark.parametrize(
    "scenario", [SCENARIOS["h5-overwrite"], SCENARIOS["savedmodel-to-h5"]], ids=["h5", "savedmodel"]
)
def test_the_mode_is_that_of_the_source(scenario: Scenario, tmp_path: Path) -> None:
    """Of a directory's files where it is one: the new file is not executable."""
    source = scenario.prepare(tmp_path / "models")
    for file in [source] if source.is_file() else source.iterdir():
        if file.is_file():
            file.chmod(0o640)
    assert stat.S_IMODE(scenario.run(source).target.stat().st_mode) == 0o640


def test_a_link_is_followed(tmp_path: Path) -> None:
    """In place, what it leads to changes."""
    source = SCENARIOS["h5-in-place"].prepare(tmp_path / "models")
    link = tmp_path / "link.h5"
    link.symlink_to(source)
    written: Any = SCENARIOS["h5-in-place"].run(link)
    assert (written.target, written.followed_link, written.backup) == (
        source,
        True,
        source.with_name(f"{source.name}.bak"),
    )
    assert link.is_symlink()
