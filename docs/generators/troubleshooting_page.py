"""The page of the error messages that ``policytool explain`` knows."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final

from policytool.troubleshooting.entries import entries, families

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.troubleshooting.entries import Entry, Step

_MARKUP: Final = re.compile(r"[\\*<>\[\]|]|(?<![^\W_])_|_(?![^\W_])")
_CODE: Final = re.compile(r"(`[^`]+`)")
_ABOVE: Final = "`policytool explain releases` lists the names."
"""The end of a step that the page has once, above all entries."""

_EVERYWHERE: Final = "all releases"
"""The releases of an entry that needs no line about them."""

_MOST_USES: Final = 3
"""So many entries have a check that is described above all entries."""

_DESCRIBED: Final = re.compile(r"policytool (?:inspect \S+ --releases all|audit \S+ --target \S+)")
"""The commands of checks that are described above all entries."""


def troubleshooting_page() -> str:
    """Return the page: a list of messages, and a section for each entry."""
    lines = [
        "# Troubleshooting by error message",
        "",
        (
            "`make docs` generates this page from the data of `policytool explain`, which finds "
            "the entry for a message or a whole traceback:"
        ),
        "",
        "```console",
        "python load.py 2>&1 | policytool explain -",
        "```",
        "",
        (
            "In the commands, `model.h5`, `model.keras`, `model.json`, `model.yaml` and "
            "`exported/` stand for your model."
        ),
        "",
        (
            "If another release fails, use its name as `--target`. `policytool explain "
            "releases` lists the names. To check whether an entry applies, `policytool audit "
            "MODEL --target RELEASE` names the layers and keys that fail. `policytool inspect "
            "MODEL --releases all` identifies the file, and shows its policies, the release "
            "that wrote it, and those that load it. If an entry names no releases, all print the "
            "message."
        ),
    ]
    for family in families():
        lines += ["", f"## {family.title}"]
        for entry in family.entries:
            lines += ["", *_section(entry)]
    return "\n".join(lines) + "\n"


@cache
def _uses() -> Counter[str]:
    """Return how many entries have each check."""
    return Counter(entry.check.text for entry in entries())


def _section(entry: Entry) -> Iterator[str]:
    """Yield the lines of an entry; its heading is its id, which makes the anchor."""
    yield f"### {entry.id}"
    yield ""
    yield "```text"
    yield entry.title
    yield "```"
    yield ""
    releases = "" if entry.releases == _EVERYWHERE else f" ({_prose(entry.releases)})"
    yield f"**Cause{releases}.** {_prose(entry.cause)}"
    is_described = _DESCRIBED.fullmatch(entry.check.command or "")
    if _uses()[entry.check.text] < _MOST_USES and not is_described:
        yield ""
        yield from _step("**Check.** ", entry.check)
    steps = [step for step in entry.fix if not step.text.strip().endswith(_ABOVE)]
    for number, step in enumerate(steps or entry.fix):
        yield ""
        # texts of alternatives begin with "Or", as on a terminal
        yield from _step("" if number else "**Fix.** ", step)


def _step(label: str, step: Step) -> Iterator[str]:
    yield f"{label}{_prose(step.text)}"
    if step.command:
        yield ""
        yield "```console"
        yield step.command
        yield "```"


def _prose(text: str) -> str:
    """Return a sentence as Markdown, in which only code between backticks is markup."""
    return "".join(
        piece if number % 2 else _MARKUP.sub(r"\\\g<0>", piece)
        for number, piece in enumerate(_CODE.split(text))
    )
