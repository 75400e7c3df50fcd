"""
A process of its own that takes lines on stdin and answers with lines on a pipe that nothing else
writes to.

What it prints beside that, on stdout or stderr, is kept for when it ends badly. It has a process
group of its own: a Ctrl-C at the terminal is heard here alone, and ending the process ends whatever
it started.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from typing import TYPE_CHECKING, Final

from policytool.support.processes import interrupts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

GRACE: Final = 2.0
"""Seconds that a child has to end by itself when it is asked to."""

_TAIL: Final = 4000
"""Bytes of the child's own output that go into an error's details."""

_BLOCK: Final = 2**16
"""What a pipe holds."""

_DIED_OF: Final = (
    frozenset({signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS})
    if os.name == "posix"
    else frozenset()
)
"""Signals that may mean that memory ran out."""


class Child:
    """A child process. The code that starts it must end it."""

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[str] = (),
        *,
        environment: Mapping[str, str],
        longest: int,
        cwd: str | Path | None = None,
    ) -> None:
        """
        Start ``command``, then the number of the pipe's descriptor, then ``arguments``; an answer
        has at most ``longest`` bytes.

        :raises OSError: where it cannot be started.
        """
        self._longest = longest
        self._begun: list[bytes] = []
        self._size = 0
        self.longest_line = 0
        """Bytes of the longest line that it said, or has begun to say."""

        self._messages = tempfile.TemporaryFile()  # end() closes it  # noqa: SIM115
        self.descriptor, theirs = os.pipe()
        try:
            with interrupts.deferred():  # no process without an entry
                self.process = subprocess.Popen(  # noqa: S603  # this interpreter, or the one that the user chose
                    [*command, str(theirs), *arguments],
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.PIPE,
                    stdout=self._messages,
                    stderr=self._messages,
                    pass_fds=(theirs,),
                    start_new_session=True,
                )
                self._entry = interrupts.add_group(self.process.pid)
        except BaseException:
            self._close()
            raise
        finally:
            os.close(theirs)

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def send(self, line: bytes) -> None:
        """
        Give it a line.

        :raises BrokenPipeError: where it takes none any more.
        """
        if self.process.stdin is not None:
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def receive(self) -> list[bytes] | None:
        """
        Return the lines that one read completes, waiting for something to read; None where it is
        gone, or says more than it may.
        """
        block = os.read(self.descriptor, _BLOCK)
        *complete, rest = block.split(b"\n")
        if complete:
            complete[0] = b"".join((*self._begun, complete[0]))
            self._begun.clear()
            self._size = 0
        self._begun.append(rest)
        self._size += len(rest)
        self.longest_line = max(self.longest_line, self._size, *map(len, complete))
        return complete if block and self.longest_line <= self._longest else None

    @property
    def messages(self) -> str:
        """The end of what it printed."""
        if self._messages.closed:
            return ""
        size = os.fstat(self._messages.fileno()).st_size
        return os.pread(self._messages.fileno(), _TAIL, max(0, size - _TAIL)).decode(
            "utf-8", "replace"
        )

    def how_it_ended(self) -> str:
        """
        Return, as a sentence part, what ended it, with its last words where it ended by itself.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(GRACE)
        code = self.process.returncode
        if code is not None and code < 0:
            return (
                f"was terminated by {signal.Signals(-code).name}"
                if -code in set(signal.Signals)
                else f"was terminated by signal {-code}"
            )
        last = next(
            (line.strip() for line in reversed(self.messages.splitlines()) if line.strip()), ""
        )
        return f"exited with code {code}" + (f": {last[:300]}" if last else "")

    @property
    def may_have_lacked_memory(self) -> bool:
        """Whether it ended as the system ends what takes too much."""
        code = self.process.returncode
        return code is not None and -code in _DIED_OF

    def end(self, grace: float = 0) -> None:
        """
        End it and the processes that it started, immediately or after some seconds in which it may
        end by itself.
        """
        if grace and self.is_alive:
            self.hang_up()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        interrupts.remove(self._entry)
        self.hang_up()
        self._close()

    def hang_up(self) -> None:
        """Close its stdin, which it takes as the end."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()

    def _close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        self._messages.close()
