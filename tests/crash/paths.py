"""Every way in which a command writes a file: what lies there before, and the command."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.conftest import (
    FIXED_SCALE_H5,
    MIXED_H5,
    MIXED_JSON,
    MIXED_KERAS,
    MIXED_SAVEDMODEL,
    MIXED_TFJS,
    MIXED_YAML,
    UNPACKED,
)
from tests.helpers.paths import FIXTURES
from tests.numerics.test_reexport import FAKE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ONE_FILE: Final = FIXTURES / "tf2.15/global_mixed_float16"
"""
A SavedModel whose metadata stands in one file; that of :data:`MIXED_SAVEDMODEL` stands in two.
"""

_TO: Final = ("--to", "float32")
_FOLLOW: Final = ("--include", "outputs")
_CASTS: Final = ("--to", "float16", *_FOLLOW)
_FIXABLE: Final = {"model.h5": FIXED_SCALE_H5}
_H5: Final = {"model.h5": MIXED_H5}
_KERAS: Final = {"model.keras": MIXED_KERAS}


@dataclass(frozen=True, kw_only=True, slots=True)
class WritePath:
    """One way to write."""

    name: str
    models: Mapping[str, Path]
    """What lies in the directory, by its name there."""

    arguments: tuple[str, ...]
    """The command, in which ``@`` stands for the directory, and ``^`` for the one above."""

    code: int = 0
    """How the command ends where nothing fails."""

    texts: Mapping[str, bytes] = field(default_factory=dict)
    """Other files there."""

    backup_goes: bool = False
    """
    Whether an older backup, which the command was told to overwrite, is gone before the new one has
    its name.
    """

    report: str = ""
    """
    A report in JSON, which is another one where what it tells is another thing: anything whole is
    right.
    """

    processes: bool = False
    """Whether further processes write, which are killed in place of the one that was started."""

    stands_in: bool = False
    """
    Whether something stands in for the interpreter with TensorFlow, and copies the model to where
    the result is to be.
    """

    removes: bool = False
    """
    Whether a directory is removed in the end, some of which a process that is interrupted leaves
    under a hidden name.
    """

    separate: bool = False
    """
    Whether several things are done that each stand for themselves, so that a failure of one leaves
    the others new: files, or an audit after a fix.
    """

    def prepare(self, directory: Path) -> None:
        """Put what lies there before into the directory, and nothing else."""
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        for name, model in self.models.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            if model.is_dir():
                shutil.copytree(model, directory / name)
            else:
                shutil.copyfile(model, directory / name)
        if self.stands_in:
            _stand_in(directory.parent)
        for name, text in self.texts.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(text)

    def command(self, directory: Path) -> tuple[str, ...]:
        """Return the arguments for a directory."""
        return tuple(
            argument.replace("@", f"{directory}{os.sep}").replace(
                "^", f"{directory.parent}{os.sep}"
            )
            for argument in self.arguments
        )


def _stand_in(directory: Path) -> None:
    """Make what is named as an interpreter, and what it runs."""
    script, python = directory / "stand_in.py", directory / "python"
    if not python.exists():
        script.write_text(FAKE, encoding="utf-8")
        script.with_name(f"{script.name}.json").write_text("{}", encoding="utf-8")
        python.write_text(
            f'#!/bin/sh\nfor last; do :; done\nexec {sys.executable} {script} "$last"\n',
            encoding="utf-8",
        )
        python.chmod(0o755)


def _migrate(
    name: str,
    models: Mapping[str, Path],
    *options: str,
    texts: Mapping[str, bytes] | None = None,
    **more: Any,
) -> WritePath:
    model = next(iter(models))
    return WritePath(
        name=name,
        models=models,
        arguments=("migrate", f"@{model}", *options),
        texts=texts or {},
        **more,
    )


_OLD: Final = b"what was there"
_PLACE: Final = ("--in-place",)
_LOSING: Final = ("--in-place=no-backup",)
_TWO: Final = {"model": MIXED_SAVEDMODEL}
_ONE: Final = {"model": ONE_FILE}

PATHS: Final = (
    _migrate("h5: new file", _H5, *_TO, "-o", "@other.h5"),
    _migrate(
        "h5: over another",
        _H5,
        *_TO,
        "-o",
        "@other.h5",
        "--existing=replace",
        texts={"other.h5": _OLD},
    ),
    _migrate("h5: in place", _H5, *_TO, *_PLACE),
    _migrate("h5: in place, no backup", _H5, *_TO, *_LOSING),
    _migrate(
        "h5: in place, over an older backup",
        _H5,
        *_TO,
        *_PLACE,
        "--existing=replace",
        texts={"model.h5.bak": _OLD},
    ),
    _migrate("h5: values cast, in place", _H5, *_CASTS, *_PLACE),
    _migrate("keras: new file", _KERAS, *_TO, "-o", "@other.keras"),
    _migrate("keras: in place", _KERAS, *_TO, *_PLACE),
    _migrate("keras: values cast, in place", _KERAS, *_CASTS, *_PLACE),
    _migrate("keras directory: new", {"model": UNPACKED}, *_CASTS, "-o", "@other"),
    _migrate(
        "keras directory: one file in place",
        {"model": UNPACKED},
        *("--to", "mixed_bfloat16"),
        *_FOLLOW,
        *_PLACE,
    ),
    _migrate("keras directory: in place", {"model": UNPACKED}, *_CASTS, *_PLACE),
    _migrate("savedmodel: new", _ONE, *_TO, "-o", "@other"),
    _migrate(
        "savedmodel: over another",
        _ONE,
        *_TO,
        "-o",
        "@other",
        "--existing=replace",
        texts={"other/old": _OLD},
        removes=True,
    ),
    _migrate("savedmodel: one file in place", _ONE, *_TO, *_PLACE),
    _migrate("savedmodel: in place", _TWO, *_TO, *_PLACE),
    _migrate("savedmodel: in place, no backup", _TWO, *_TO, *_LOSING, removes=True),
    _migrate(
        "savedmodel: in place, over an older backup",
        _TWO,
        *_TO,
        *_PLACE,
        "--existing=replace",
        texts={"model.bak/old": _OLD},
        backup_goes=True,
        removes=True,
    ),
    _migrate(
        "savedmodel: --retrace, new",
        _ONE,
        "--retrace",
        "--python",
        "^python",
        "-o",
        "@other",
        stands_in=True,
    ),
    _migrate(
        "savedmodel: --retrace, in place",
        _ONE,
        "--retrace",
        "--python",
        "^python",
        *_PLACE,
        stands_in=True,
    ),
    _migrate(
        "keras_metadata.pb: in place",
        {"keras_metadata.pb": ONE_FILE / "keras_metadata.pb"},
        *_TO,
        *_PLACE,
    ),
    _migrate("json: in place", {"model.json": MIXED_JSON}, *_TO, *_PLACE),
    _migrate("yaml: in place", {"model.yaml": MIXED_YAML}, *_PLACE),
    _migrate(
        "tfjs: in place",
        {
            "model/model.json": MIXED_TFJS,
            "model/group1-shard1of1.bin": MIXED_TFJS.with_name("group1-shard1of1.bin"),
        },
        *_TO,
        *_PLACE,
    ),
    _migrate(
        "tfjs: with its shards to a new directory",
        {
            "model/model.json": MIXED_TFJS,
            "model/group1-shard1of1.bin": MIXED_TFJS.with_name("group1-shard1of1.bin"),
        },
        *_TO,
        "-o",
        "@new/model.json",
        texts={"new/note": _OLD},
        separate=True,
    ),
    _migrate("target: h5 anew", _H5, "--target", "keras3", "-o", "@other.h5"),
    _migrate("target: h5 to keras", _H5, "--target", "keras3", "-o", "@other.keras"),
    _migrate("target: keras to h5", _KERAS, "--target", "tf2.15", "-o", "@other.h5"),
    _migrate(
        "target: json anew", {"model.json": MIXED_JSON}, "--target", "keras3", "-o", "@other.json"
    ),
    _migrate("target: savedmodel to h5", _ONE, "--target", "keras3", "-o", "@other.h5"),
    _migrate("target: keras in place", _KERAS, "--target", "keras3.0", *_PLACE),
    _migrate(
        "several in one process",
        {"model.h5": MIXED_H5, "two.h5": FIXED_SCALE_H5},
        "@two.h5",
        *_TO,
        *_PLACE,
        "--jobs",
        "1",
        separate=True,
    ),
    _migrate(
        "several in two processes",
        {"model.h5": MIXED_H5, "two.h5": FIXED_SCALE_H5},
        "@two.h5",
        *_TO,
        *_PLACE,
        "--jobs",
        "2",
        separate=True,
        processes=True,
    ),
    _migrate(
        "migrate --format FORMAT=FILE",
        _H5,
        *_TO,
        *_PLACE,
        "--format",
        "json=@report.json",
        texts={"report.json": _OLD},
        separate=True,
        report="report.json",
    ),
    _migrate(
        "migrate --preview --format FORMAT=FILE (a plan)",
        _H5,
        *_TO,
        "--preview",
        "--format",
        "json=@plan.json",
        separate=True,
        report="plan.json",
        code=1,
    ),
    WritePath(
        name="inspect --format FORMAT=FILE",
        models=_H5,
        arguments=("inspect", "@model.h5", "--format", "json=@report.json"),
        separate=True,
        report="report.json",
    ),
    WritePath(
        name="diff --format FORMAT=FILE",
        models={**_H5, "two.h5": FIXED_SCALE_H5},
        arguments=("diff", "@model.h5", "@two.h5", "--format", "json=@r.json"),
        code=1,
        separate=True,
        report="r.json",
    ),
    WritePath(
        name="audit --format FORMAT=FILE",
        models=_FIXABLE,
        arguments=("audit", "@model.h5", "--format", "sarif=@r.sarif"),
        code=1,
        separate=True,
        report="r.sarif",
    ),
    WritePath(
        name="audit --write-baseline, over an older",
        models=_FIXABLE,
        arguments=("audit", "@model.h5", "--write-baseline", "@b.json"),
        texts={"b.json": _OLD},
        separate=True,
        report="b.json",
    ),
    WritePath(
        name="audit --fix",
        models=_FIXABLE,
        arguments=("audit", "@model.h5", "--fix"),
        separate=True,
    ),
    WritePath(
        name="audit --fix --unsafe-fixes --no-backup",
        models=_FIXABLE,
        arguments=("audit", "@model.h5", "--fix", "--unsafe-fixes", "--no-backup"),
        separate=True,
    ),
)
