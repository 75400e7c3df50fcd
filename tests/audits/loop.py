"""
Audit models, run the command that each audit prints, and audit the result.

    python -m tests.audits.loop [--target keras3] [--show] FOLDER...

Works on a copy of each folder, so that the commands write beside copies.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from policytool.cli.main import run as run_main
from policytool.commands import audit as auditing
from policytool.commands.arguments.reading import AuditArguments
from policytool.formats import discovery
from policytool.rules.base import Audited, Severity, fails

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from policytool.formats.discovery import Input
    from policytool.rules import AuditOptions
    from policytool.rules.base import ModelCommand


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What became of one model."""

    path: str
    outcome: str
    """``passes``, ``fixed``, ``failed`` (the command), ``still`` fails, or ``blocked``."""

    details: tuple[str, ...] = ()
    """The command and what followed; of a blocked model the rules, then the reason."""


def turns(folder: Path, target: str | None, work: Path) -> Iterator[Turn]:
    """Yield what becomes of each model in a copy of a folder."""
    copy = work / folder.name
    shutil.copytree(folder, copy, symlinks=True)
    options = auditing.audit_options(AuditArguments(target=target))
    for found in list(discovery.inputs([str(copy)])):
        audited = auditing.attempt(found, options)
        if isinstance(audited, Audited):
            path = found.local_path.relative_to(copy).as_posix()
            failing = _failing(audited)
            if not failing:
                yield Turn(path=path, outcome="passes")
            for command in audited.commands if failing else ():
                yield _turn(found, path, failing, command, options)


def _turn(
    found: Input,
    path: str,
    failing: tuple[str, ...],
    command: ModelCommand,
    options: AuditOptions,
) -> Turn:
    if command.arguments is None:
        rules = " ".join(sorted({text.split()[0] for text in failing}))
        return Turn(path=path, outcome="blocked", details=(rules, str(command.reason)))
    result = " ".join(command.arguments)
    before = set(found.local_path.parent.iterdir())
    code, text = _run("migrate", str(found.path), *command.arguments)
    written = [item for item in found.local_path.parent.iterdir() if item not in before]
    try:
        if code != 0 or len(written) != 1:
            return Turn(path=path, outcome="failed", details=(result, text))
        model = written[0]
        if found.local_path.name == (model / "model.json").name and model.is_dir():
            model /= "model.json"  # TensorFlow.js
        after = auditing.attempt(discovery.named_input(str(model)), options)
        left = _failing(after) if isinstance(after, Audited) else (str(after),)
        left = tuple(text for text in left if text.split()[0] not in command.leaves)
        return Turn(path=path, outcome="still" if left else "fixed", details=(result, *left))
    finally:
        for item in written:
            shutil.rmtree(item) if item.is_dir() else item.unlink()


def _failing(audited: Audited) -> tuple[str, ...]:
    return tuple(
        f"{finding.rule} {finding.message}"
        for finding in audited.findings
        if fails(finding, Severity.WARNING)
    )


def _run(*arguments: str) -> tuple[int, str]:
    """Return the exit code of the command line, and what it printed."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = run_main(list(arguments))
        except SystemExit as ended:
            code = int(ended.code or 0)
    return code, output.getvalue()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print how many models there are of each outcome, and which are not as they should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--target")
    parser.add_argument("--show", action="store_true", help="list blocked models too")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as work:
        for folder in asked.folders:
            actual = list(turns(folder, asked.target, Path(work)))
            counts = Counter(turn.outcome for turn in actual)
            print(f"{folder}: {len(actual)} models, {dict(counts)}")
            blocked = Counter(turn.details[0] for turn in actual if turn.outcome == "blocked")
            for rules, count in blocked.most_common():
                print(f"  blocked {count:4} {rules}")
            for turn in actual:
                if turn.outcome in {"failed", "still"} or (
                    asked.show and turn.outcome == "blocked"
                ):
                    print(f"  {turn.outcome} {turn.path}: {' | '.join(turn.details)}")


if __name__ == "__main__":
    main()
