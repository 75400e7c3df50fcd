"""
Runs a command and prints what the system says of it as JSON: ``python -S measuring.py SECONDS
OUTPUT COMMAND...``.

A process of its own, because a started process begins with the peak memory of the one that starts
it, until it runs another program (getrusage(2), ``ru_maxrss``): a test runner of a gigabyte would
be measured instead.
"""

from __future__ import annotations

import json
import os
import resource
import sys


def main(seconds: int, output: str, command: list[str]) -> None:
    """
    Run a command, with its messages to a file, and print its status, processor time and peak
    memory.
    """
    null = os.open(os.devnull, os.O_WRONLY)
    messages = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    process = os.posix_spawn(
        command[0],
        command,
        os.environ,
        file_actions=[(os.POSIX_SPAWN_DUP2, null, 1), (os.POSIX_SPAWN_DUP2, messages, 2)],
    )
    resource.prlimit(process, resource.RLIMIT_CPU, (seconds, seconds))
    _, status, usage = os.wait4(process, 0)
    actual = {
        "code": os.waitstatus_to_exitcode(status),
        "seconds": round(usage.ru_utime + usage.ru_stime, 1),
        "mib": usage.ru_maxrss // 1024,
    }
    sys.stdout.write(json.dumps(actual))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
