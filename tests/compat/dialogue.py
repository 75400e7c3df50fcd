"""A process with both newest libraries that answers questions, a line of JSON for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tests.compat.asking import ENVIRONMENT
from tests.helpers.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Dialogue:
    """A running process, with what it said at first: the files that it saved."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.saved = self._read()

    def answer(self, question: Sequence[str]) -> Any:
        """Return what the process says to a question."""
        assert self._process.stdin is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(("{", "[", '"')):
                return json.loads(line)
        raise AssertionError(f"the libraries ended with {self._process.wait()}")


@contextmanager
def dialogue(python: Path, module: str, folder: Path, *names: str) -> Iterator[Dialogue]:
    """
    Run a module of this folder, which saves its models to a folder, until the block ends.

    :param module: its name, such as ``conversion_models``
    :param names: the models that it saves; all if there are none
    """
    with subprocess.Popen(
        [str(python), "-m", f"tests.compat.{module}", str(folder), *names],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
        text=True,
    ) as process:
        yield Dialogue(process)
