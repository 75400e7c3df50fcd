"""Read the tutorials of the documentation, run their commands, and compare what they print."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from policytool.support import project
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

CUT: Final = "..."
"""A line of a page that represents any number of printed lines."""

CLONE: Final = f"git clone {project.URL}"
INSTALL: Final = "pip install ./policytool"
INSTALL_CHECK: Final = "pip install './policytool[check]'"
"""From this command on, a tutorial uses TensorFlow."""

SETUP: Final = frozenset({CLONE, INSTALL, INSTALL_CHECK})
"""Commands that need a network. A link to this repository replaces the clone."""

COLUMNS: Final = 80

_FENCE: Final = re.compile(r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?$')
_HEADING: Final = re.compile(r"^## (?:(?P<number>\d+)\. )?(?P<text>.+)$")
_MEASURED: Final = re.compile(r"(?<![\d.])(?:0\.\d+(?![\d.])|\d(?:\.\d+)?e[+-]?\d+)")
"""A measured number. Versions do not start with ``0.`` and have no exponent."""

_FACTOR: Final = 2.0
"""
The largest factor between a measured number and the one on the page. The order of sums differs
between processors, and with it the error of a layer, but not its magnitude.
"""

_TIMEOUT: Final = 300
"""Seconds for one command; a check takes a few seconds on an idle machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command of a page and its output."""

    step: int
    """The step that contains it; 0 before the first step."""

    text: str

    line: int
    """The index of the first line of its output."""

    output: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TutorialFile:
    """A file that the page tells its reader to write."""

    step: int
    name: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Quotation:
    """Text of another program that the page quotes, such as an error message."""

    text: str


Action = Command | TutorialFile


@dataclass(frozen=True, kw_only=True, slots=True)
class Tutorial:
    """A page of ``docs/tutorials``."""

    path: Path
    lines: tuple[str, ...]
    headings: tuple[str, ...]
    steps: tuple[int, ...]
    """The numbers in the headings of the steps."""

    actions: tuple[Action, ...]
    """Files to write and commands to run, from top to bottom."""

    quotations: tuple[Quotation, ...]

    @property
    def commands(self) -> tuple[Command, ...]:
        """The commands, from top to bottom."""
        return tuple(action for action in self.actions if isinstance(action, Command))

    @property
    def without_tensorflow(self) -> Tutorial:
        """The part before the installation of TensorFlow."""
        texts = [action.text for action in self.actions]
        end = texts.index(INSTALL_CHECK) if INSTALL_CHECK in texts else len(texts)
        return replace(self, actions=self.actions[:end])

    @property
    def prose(self) -> str:
        """The page without its blocks."""
        return re.sub(r"^```.*?^```$", "", "\n".join(self.lines), flags=re.MULTILINE | re.DOTALL)


def read_tutorial(path: Path) -> Tutorial:
    """Return a tutorial; raise ``ValueError`` for a block that is not run, written or quoted."""
    lines = tuple(path.read_text(encoding="utf-8").splitlines())
    headings: list[str] = []
    steps: list[int] = []
    actions: list[Action] = []
    quotations: list[Quotation] = []
    step = index = 0
    while index < len(lines):
        if heading := _HEADING.match(lines[index]):
            headings.append(heading["text"])
            if heading["number"]:
                step = int(heading["number"])
                steps.append(step)
        if lines[index].lstrip().startswith(("```", "~~~")):
            end = lines.index("```", index + 1)
            fence = _FENCE.match(lines[index])
            text = "\n".join(lines[index + 1 : end]) + "\n"
            match (fence["kind"], fence["title"]) if fence else (None, None):
                case (str(), str(title)):
                    actions.append(TutorialFile(step=step, name=title, text=text))
                case ("console", None):
                    actions += _commands(lines, index + 1, end, step)
                case ("text", None):
                    quotations.append(Quotation(text=text.strip()))
                case _:
                    message = f"{path.name}:{index + 1}: nothing runs this block"
                    raise ValueError(message)
            index = end
        index += 1
    return Tutorial(
        path=path,
        lines=lines,
        headings=tuple(headings),
        steps=tuple(steps),
        actions=tuple(actions),
        quotations=tuple(quotations),
    )


def _commands(lines: Sequence[str], start: int, end: int, step: int) -> Iterator[Command]:
    """Yield the commands of a block; a line that ends with a backslash continues on the next."""
    prompts = [index for index in range(start, end) if lines[index].startswith("$ ")]
    if prompts[:1] != [start]:
        message = f"line {start + 1}: a console block starts with a command"
        raise ValueError(message)
    for prompt, following in zip(prompts, [*prompts[1:], end], strict=True):
        last = prompt
        while lines[last].endswith("\\"):
            last += 1
        yield Command(
            step=step,
            text="\n".join(lines[prompt : last + 1]).removeprefix("$ "),
            line=last + 1,
            output=tuple(lines[last + 1 : following]),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Printed:
    """What a command printed, and its exit code."""

    code: int
    shown: str
    """What the page shows: stdout, and stderr for policytool."""

    log: str
    """The stderr of other programs. Pages leave it out: TensorFlow logs the machine's features."""

    measured: bool
    """Whether its output may contain measured numbers."""


class Session:
    """The terminal of a reader, in an empty directory."""

    def __init__(self, home: Path, tensorflow: str | None) -> None:
        """``tensorflow`` is the interpreter that the reader installs TensorFlow in."""
        self.directory = home / "work"
        self._bin = home / "bin"
        for path in (self.directory, self._bin):
            path.mkdir()
        self._tensorflow = tensorflow
        self._installed = False
        self._code = 0
        self._write_program(
            "policytool", f"PYTHONPATH='{ROOT}' exec '{sys.executable}' -m policytool"
        )
        self._write_program("python", f"exec '{sys.executable}'")

    def write(self, file: TutorialFile) -> None:
        """Write a file as the reader does."""
        path = self.directory / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text, encoding="utf-8")

    def run(self, command: str) -> Printed:
        """Run a command in a shell that knows the exit code of the last one."""
        if command in SETUP:
            self._set_up(command)
            return Printed(code=0, shown="", log="", measured=False)
        is_ours = command.startswith("policytool ")
        done = subprocess.run(
            ["bash", "-c", f"(exit {self._code})\n{command}"],
            cwd=self.directory,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if is_ours else subprocess.PIPE,
            encoding="utf-8",
            check=False,
            timeout=_TIMEOUT,
        )
        self._code = done.returncode
        return Printed(
            code=done.returncode,
            shown=done.stdout,
            log=done.stderr or "",
            measured=self._installed,
        )

    def _set_up(self, command: str) -> None:
        clone = self.directory / "policytool"
        if command == CLONE:
            clone.symlink_to(ROOT)
            return
        assert (clone / "pyproject.toml").is_file(), "the repository is not cloned yet"
        if command == INSTALL_CHECK:
            assert self._tensorflow is not None
            self._installed = True
            self._write_program("python", f"exec '{self._tensorflow}'")

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}",
            "COLUMNS": str(COLUMNS),
            "LC_ALL": "C.UTF-8",
            **({"POLICYTOOL_PYTHON": self._tensorflow or ""} if self._installed else {}),
        }

    def _write_program(self, name: str, command: str) -> None:
        path = self._bin / name
        path.write_text(f'#!/bin/sh\n{command} "$@"\n', encoding="utf-8")
        path.chmod(0o755)


def is_shown(output: Sequence[str], printed: Printed) -> bool:
    """
    Return whether a page shows what a command printed.

    Lines are equal, except that ``...`` represents any lines. After the installation of
    TensorFlow, measured numbers may differ by a factor and change where lines break.
    """
    if not printed.measured:
        pattern = "".join(
            r"(?:.*\n)*?" if line == CUT else rf"{re.escape(line)}\n" for line in output
        )
        return re.fullmatch(pattern, printed.shown) is not None
    pattern = "".join(
        r"[\s\S]*?" if line == CUT else rf"\s*{_words_pattern(line)}\s" for line in output
    )
    match = re.fullmatch(rf"{pattern}\s*", printed.shown)
    numbers = [number for line in output if line != CUT for number in _MEASURED.findall(line)]
    return match is not None and all(
        _is_near(float(shown), float(measured))
        for shown, measured in zip(numbers, match.groups(), strict=True)
    )


def _words_pattern(line: str) -> str:
    """Return a pattern for the words of a line that captures its measured numbers."""
    return r"\s+".join(
        "─+"
        if set(word) == {"─"}
        else rf"({_MEASURED.pattern})".join(re.escape(part) for part in _MEASURED.split(word))
        for word in line.split()
    )


def _is_near(shown: float, measured: float) -> bool:
    if shown == measured:
        return True
    smaller, larger = sorted((abs(shown), abs(measured)))
    return larger <= _FACTOR * smaller


def updated_page(tutorial: Tutorial, printed: Sequence[Printed]) -> str:
    """Return the page with the output of its first commands, cut where it is cut now."""
    lines = list(tutorial.lines)
    for command, result in reversed(list(zip(tutorial.commands, printed, strict=False))):
        if not is_shown(command.output, result):
            end = command.line + len(command.output)
            lines[command.line : end] = _cut(command.output, result.shown.splitlines())
    return "\n".join(lines) + "\n"


def _cut(shown: Sequence[str], printed: Sequence[str]) -> list[str]:
    """Return as many printed lines between two cuts as are shown there, from the likest place."""
    if CUT not in shown:
        return list(printed)
    kept: list[str] = []
    start = 0
    for lines, is_first, is_last in _parts_between_cuts(shown):
        last = len(printed) - len(lines)
        first = start if not is_last else last
        places = {
            at: _likeness(lines, printed[at : at + len(lines)])
            for at in range(first, start + 1 if is_first else last + 1)
        }
        place = max(places, key=places.__getitem__, default=start)
        kept += [*([] if is_first else [CUT]), *printed[place : place + len(lines)]]
        start = place + len(lines)
    return kept


def _parts_between_cuts(shown: Sequence[str]) -> Iterator[tuple[list[str], bool, bool]]:
    """Yield the lines between cuts, and whether they are the first and the last."""
    cuts = [-1, *(index for index, line in enumerate(shown) if line == CUT), len(shown)]
    for start, end in pairwise(cuts):
        yield list(shown[start + 1 : end]), start == -1, end == len(shown)


def _likeness(lines: Sequence[str], printed: Sequence[str]) -> float:
    return SequenceMatcher(None, "\n".join(lines), "\n".join(printed)).ratio()
