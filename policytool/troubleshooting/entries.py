"""
The entries of ``explain`` for error messages, each with its cause, a check and a fix, and the
search for the entries that match a pasted error message or traceback.

The entries are in ``data/FAMILY.toml``, with the schema in ``data/schemas/``. They refer by name to
the steps and expressions in ``data/shared.toml``.

The confidence of an entry is the product of two numbers:

- the specificity of the pattern that matches: 0.95 if only one cause prints the message, 0.75 if it
  is the usual cause, 0.4 if several causes print it, 0.2 if only the place of the error is known
- the position of the match: 1 in the last exception of a traceback, 0.8 in an earlier exception,
  such as the first of a chain (``During handling of the above exception, ...``), and 0.5 outside of
  exceptions. In a text without an exception, all positions have the weight 1.

If an entry matches several times, the match with the highest confidence counts. Matches of equal
confidence are sorted by line, the last line first, and then by the order of the entries. An entry
is left out if its confidence is at most half of the highest one, or if an entry with a higher
confidence matches the same line.

If only the place of an error is known, or nothing, the search is repeated without quotes, which
users leave out when they retype a message, and then also without regard to case if the text is
short and contains no word such as ``ValueError``.

Users also paste a sentence of their own, such as ``how to load .h5 in Keras 3``. The patterns for
such sentences are general, or show only the subject, and are composed of shared expressions for
words of loading, failing and asking.

The text may contain colors, prefixes of log lines, frames of tracebacks, HTML entities, and lines
that a terminal broke.
"""

from __future__ import annotations

import html
import re
import shlex
import tomllib
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.support.errors import UsageError
from policytool.support.limits import MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class Specificity(Enum):
    """How well a pattern identifies the cause. The value is a factor of the confidence."""

    EXACT = 0.95
    """Only this cause prints the message."""

    LIKELY = 0.75
    """This is the usual cause of the message."""

    GENERAL = 0.4
    """The message has several causes; an entry that names one of them is preferred."""

    CONTEXT = 0.2
    """Only the place is known, such as the loading code of Keras; any other entry is preferred."""


class Pattern(Struct, frozen=True, kw_only=True):
    """
    A regular expression for a message.

    It is searched in text whose white space is collapsed to single spaces. Repetitions are bounded,
    so that the time is linear in the length of the text.
    """

    regex: re.Pattern[str]
    specificity: Specificity
    needs: str = ""
    """
    A regular expression that must also match anywhere in the text; empty if there is no such
    condition. It is compiled only if ``regex`` matches.
    """

    def without_quotes(self) -> Pattern:
        """Return the pattern for texts from which all quotes were removed."""
        return replace(self, regex=_without_quotes(self.regex.pattern))

    def without_case(self) -> Pattern:
        """Return the pattern for texts in upper or lower case."""
        return replace(self, regex=_without_case(self.regex.pattern))

    def is_needed(self, text: str) -> bool:
        """Return whether ``needs`` matches a text."""
        return re.search(self.needs, text, self.regex.flags & re.IGNORECASE) is not None


class Step(Struct, frozen=True, kw_only=True):
    """An instruction for the user: a sentence, and a command if there is one for it."""

    text: str
    command: str = ""
    """
    A policytool command in which ``model.h5``, ``model.keras``, ``model.json``, ``model.yaml`` and
    ``exported/`` stand for the model.
    """


class Entry(Struct, frozen=True, kw_only=True):
    """An error message, its cause, and what to do."""

    id: str
    """A stable name in kebab case, and the anchor in the documentation."""

    title: str
    """The message as Keras or TensorFlow prints it, or the question of a user."""

    patterns: tuple[Pattern, ...]
    releases: str
    """The releases that print the message."""

    cause: str
    check: Step
    fix: tuple[Step, ...]
    sources: tuple[str, ...] = ()
    """Public reports of the message."""

    def without_quotes(self) -> Entry:
        """Return the entry with patterns for texts from which all quotes were removed."""
        return replace(self, patterns=tuple(pattern.without_quotes() for pattern in self.patterns))

    def without_case(self) -> Entry:
        """Return the entry with patterns for texts in upper or lower case."""
        return replace(self, patterns=tuple(pattern.without_case() for pattern in self.patterns))


class Family(Struct, frozen=True, kw_only=True):
    """The entries about one subject, from one data file."""

    title: str
    entries: tuple[Entry, ...]


FAMILIES: Final = ("policies", "layers", "formats", "files", "optimizers", "numerics")
"""The files of entries, in the order of the documentation."""

_REFERENCE: Final = re.compile(r"\(\?&(\w+)\)")
"""A reference to a shared expression, in Perl's syntax for references to groups."""


@cache
def families() -> tuple[Family, ...]:
    """Return all entries, by subject, in the order of the documentation."""
    shared = _load_data("shared")
    return tuple(_family(_load_data(name), shared) for name in FAMILIES)


def entries() -> Iterator[Entry]:
    """Yield all entries, in the order of the documentation."""
    for family in families():
        yield from family.entries


def _load_data(name: str) -> dict[str, Any]:
    path = Path(__file__).with_name("data") / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _family(family: Mapping[str, Any], shared: Mapping[str, Any]) -> Family:
    """Return a family of entries from its data file."""
    steps = {name: _step(step, {}) for name, step in shared["steps"].items()}
    return Family(
        title=family["title"],
        entries=tuple(
            Entry(
                id=entry["id"],
                title=entry["title"],
                patterns=tuple(_patterns(entry, shared["expressions"])),
                releases=entry["releases"],
                cause=_unwrapped(entry["cause"]),
                check=_step(entry["check"], steps),
                fix=tuple(_step(step, steps) for step in entry["fix"]),
                sources=tuple(entry.get("sources", ())),
            )
            for entry in family["entries"]
        ),
    )


def _step(step: Mapping[str, str], steps: Mapping[str, Step]) -> Step:
    """Return a step, or the shared step that it names."""
    if name := step.get("step"):
        return steps[name]
    return Step(text=_unwrapped(step["text"]), command=step.get("command", ""))


def _patterns(entry: Mapping[str, Any], expressions: Mapping[str, str]) -> Iterator[Pattern]:
    """Yield the patterns of an entry, the most specific first."""
    for specificity in Specificity:
        for pattern in entry.get(specificity.name.lower(), ()):
            regex, required = (
                (pattern, "") if isinstance(pattern, str) else (pattern["regex"], pattern["needs"])
            )
            yield Pattern(
                regex=re.compile(_with_any_quotes(_expanded(regex, expressions)), re.MULTILINE),
                specificity=specificity,
                needs=_expanded(required, expressions),
            )


def _expanded(regex: str, expressions: Mapping[str, str]) -> str:
    """Return a regular expression, with expressions instead of the references to them."""
    return _REFERENCE.sub(lambda reference: expressions[reference[1]], regex)


_QUOTES_OF_MESSAGES: Final = re.compile(
    r"""(?P<other>\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<double>")|`(?P<counted>(?=[?{]))?"""
)
"""The quotes in a regular expression, outside of sets of characters."""


def _with_any_quotes(regex: str) -> str:
    """
    Return a regular expression that also matches messages in which users have replaced quotes, or
    lost those of Markdown.
    """

    def replacement(match: re.Match[str]) -> str:
        if other := match["other"]:
            return other
        if match["double"]:
            return "[\"'`]"
        return "[`']" if match["counted"] is not None else "[`']?"

    return _QUOTES_OF_MESSAGES.sub(replacement, regex)


_ANY_QUOTE: Final = re.compile(
    r"""(?P<set>\[['"`]{1,3}\]|['"`])(?P<counted>\?|\{\d{0,3},?\d{0,3}\})?|(?P<other>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)""",
    re.DOTALL,
)
"""A quote or a set of quotes in a regular expression, or another part of it."""


@cache
def _without_quotes(regex: str) -> re.Pattern[str]:
    """Return a regular expression for texts without quotes; where a quote ended, a word ends."""
    parts = list[str]()
    for match in _ANY_QUOTE.finditer(regex):
        if match["other"] is not None:
            parts.append(match["other"])
        elif (
            match["counted"] is None
            and re.match(r"[\w})\]]", "".join(parts[-1:])[-1:])
            and not regex[match.end() : match.end() + 1].isalnum()
        ):
            parts.append(r"(?!\w)")
    return re.compile("".join(parts), re.MULTILINE)


@cache
def _without_case(regex: str) -> re.Pattern[str]:
    """Return a regular expression for texts that lost upper case."""
    return re.compile(regex, re.MULTILINE | re.IGNORECASE)


def _unwrapped(text: str) -> str:
    """Return a text without its line breaks."""
    return " ".join(text.split())


_ESCAPES: Final = re.compile(
    r"\x1b\[[0-9;:?]{0,64}[ -/]{0,8}[@-~]|\x1b\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]"
    r"|\\(?=['\"])"
)
"""Sequences that set colors, titles and the cursor of a terminal, and the escapes of quotes."""

_MIXED_CASE: Final = re.compile(r"[a-z][A-Z]|[A-Z][a-z0-9]{1,40}[A-Z]")
"""What names of classes contain; a text with them was copied, not retyped."""

_ENTITIES: Final = re.compile(
    r"&(?:#0{0,3}\d{2,3}|#[xX]0{0,2}[0-9a-fA-F]{2}|quot|apos|lt|gt|amp|nbsp);"
)
"""Characters as pages and forms escape them."""

_LOGGED_LINE_BREAK: Final = re.compile(
    r"\\n(?=\\n| {2}|File \"|Traceback \(most|During handling|The above exception"
    r"|(?:[A-Za-z_]\w{0,80}\.){0,10}[A-Z]\w{0,80}(?:Error|Exception): )"
)
"""Line breaks that a log or JSON escapes, other than the beginning of a name in a path."""

_QUOTES: Final = str.maketrans(
    "\u2018\u2019\u201a\u201b\u2032\xb4\u2039\u203a\uff07"
    "\u201c\u201d\u201e\u201f\u2033\xab\xbb\uff02"
    "\xa0\u3000\uff1a\uff08\uff09\uff0c",
    "'''''''''" + '"' * 8 + "  :(),",
)
"""
Quotes, spaces and punctuation of other languages, and those that text processors and chats write.
"""

_PREFIX: Final = re.compile(
    r"""
    ^(?:[ \t]{0,8}(?:
        \[?\d{4}-\d\d-\d\d[T\ ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[\]:]?  # CI
      | [DIWEF]\d{4}\ \d\d:\d\d:\d\d\.\d{1,9}\s{1,8}\d{1,9}\ [\w./-]{1,80}:\d{1,6}\]  # absl
      | (?:stdout|stderr)\ [FP](?=\s)  # Kubernetes
      | [\w.-]{1,60}\s{0,20}\|(?=\s)  # docker compose
      | (?:DEBUG|INFO|WARNING|ERROR|CRITICAL)(?::[\w.-]{1,60}:|\ {0,8}-(?=\s))  # Python logging
      | \#\d{1,4}\ \d{1,6}\.\d{1,3}  # BuildKit
      | [\u2502\u2503\u2551]  # boxes
    )){1,5}[ ]?""",
    re.VERBOSE,
)
"""What logs and boxes write before a line."""

_FRAMES_OF_BOXES: Final = re.compile(
    r"[ \t]{0,200}[\u2502\u2503\u2551][ \t]{0,8}$|[\u2500-\u257f]{2,400}"
)
"""The right edge of a box, and its horizontal lines."""

_SCRIPTS_WITHOUT_SPACES: Final = re.compile(
    r"""(?<=[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])(?=[\w'"`])(?=[ -~])"""
    r"""|(?<=[!-~])(?<=[\w'"`)])(?=[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af])"""
)
"""Where a message begins or ends within a Chinese, Japanese or Korean sentence."""

_LONGEST: Final = 2_000
"""
Maximum number of characters of a line that are searched. Messages of Keras begin with the problem,
and may continue with long configs.
"""

_HEADER: Final = re.compile(
    r"Traceback \(most recent call last\)|During handling of the above exception|"
    r"The above exception was the direct cause"
)
_FRAME: Final = re.compile(
    r"\bFile \"[^\"]{1,400}\", line \d{1,9}|\bFile [^ ]{1,400}:\d{1,9}, in |"
    r"^\s{0,40}[^ ]{1,400}\.py:\d{1,9} \w"
)
_MARK: Final = re.compile(r"^[\s|>E]{0,40}[~^]{1,400}\s*$")
_CELL_LINE: Final = re.compile(r"[>\s]{0,12}(?P<arrow>-{2,12}> ?)?\d{1,6}(?:[ \t]{2,400}|$)")
"""A numbered source line of a traceback in a notebook; an arrow marks the one that fails."""

_RAISED: Final = re.compile(
    r"(?:^|[\s|\]])(?:[A-Za-z_]\w{0,80}\.){0,10}"
    r"(?:[A-Z]\w{0,80}(?:Error|Exception|Warning|Interrupt)|AssertionError|KeyError)(?:: |:?$)"
)
"""The type of an exception, at the beginning of its message."""

_SOURCE: Final = re.compile(r"\s{4,200}\S")
"""A further line of an indented statement."""

_RAISE: Final = re.compile(r"\s{0,200}raise \w")
"""A source line that tells the message of a traceback that ends with it."""

_LOST_LINE_BREAK: Final = re.compile(
    r"\s(?=File \"[^\"]{1,400}\", line \d"
    r"|(?:[a-z]\w{0,80}\.){0,10}[A-Z]\w{0,80}(?:Error|Exception): )"
)
"""Where the lines of a traceback began, in a text that lost its line breaks."""

_SPACES: Final = re.compile(r"\s+")
_SEPARATORS: Final = (" ", "", " ")
"""Separators to join lines with: users break messages at spaces, and terminals anywhere."""

_ANY_QUOTES: Final = re.compile("['\"`]")
_OTHER_QUOTES: Final = str.maketrans('`"', "''")
"""Quotes that users write instead of those of the message, as in Markdown."""


class Message(Struct, frozen=True, kw_only=True):
    """Lines that belong together: the message of an exception, or a paragraph."""

    lines: tuple[tuple[int, str], ...]
    """The lines with their numbers from 1, without colors, and with white space collapsed."""

    is_exception: bool
    """Whether the message begins with the type of an exception."""

    is_last: bool
    """Whether no exception follows in the text."""

    def without_quotes(self) -> Message:
        """Return the message without quotes."""
        return replace(
            self, lines=tuple((number, _ANY_QUOTES.sub("", line)) for number, line in self.lines)
        )

    def joined_lines(self) -> tuple[str, ...]:
        """
        Return the lines joined with spaces, joined without spaces, because a terminal may have
        broken the line, and joined with spaces and with the same quotes everywhere. A text that
        would be the first again is empty.
        """
        spaced, unspaced, _ = (separator.join(self._pieces(separator)) for separator in _SEPARATORS)
        unquoted = spaced.translate(_OTHER_QUOTES)
        return (
            spaced,
            unspaced if len(self.lines) > 1 else "",
            unquoted if unquoted != spaced else "",
        )

    def line_at(self, offset: int, text: int) -> int:
        """
        Return the number of the line that contains a character of a joined text.

        :param offset: the position of the character in the joined text
        :param text: the index of the joined text in :meth:`joined`
        """
        separator = _SEPARATORS[text]
        end = 0
        for (number, _), piece in zip(self.lines, self._pieces(separator), strict=True):
            end += len(piece) + len(separator)
            if offset < end:
                return number
        return self.lines[-1][0]

    def _pieces(self, separator: str) -> list[str]:
        return [line.strip() if separator else line for _, line in self.lines]


def plain_lines(text: str) -> list[str]:
    """
    Return the lines of a text without colors, times of logs and boxes, and with straight quotes;
    escaped quotes and line breaks in a log are quotes and line breaks.
    """
    unescaped = _ENTITIES.sub(lambda entity: html.unescape(entity[0]), text)
    without_escapes = _ESCAPES.sub("", unescaped).translate(_QUOTES)
    if "\n" not in without_escapes.strip():
        if _LOGGED_LINE_BREAK.search(without_escapes):
            without_escapes = without_escapes.replace("\\n", "\n")
        elif _FRAME.search(without_escapes[:_LONGEST]):
            without_escapes = _LOST_LINE_BREAK.sub("\n", without_escapes)
    return [
        _FRAMES_OF_BOXES.sub("", _PREFIX.sub("", line)) for line in without_escapes.splitlines()
    ]


def messages(lines: list[str]) -> list[Message]:
    """
    Return the messages in the lines of a text, without frames and their source lines.

    Of a traceback without its last line, which other text may follow, the message is the source
    line that raises the exception, or the last frame if there is nothing but frames.
    """
    groups = [*_group_lines(lines)] or [*_last_frame(lines)]
    last = max((number for number, (raised, _) in enumerate(groups) if raised), default=-1)
    return [
        Message(lines=tuple(group), is_exception=raised, is_last=number >= last)
        for number, (raised, group) in enumerate(groups)
    ]


def _last_frame(lines: list[str]) -> Iterator[tuple[bool, list[tuple[int, str]]]]:
    """Yield the last line that is a frame, if there is one."""
    for number, raw_line in reversed([*enumerate(lines, 1)]):
        line = raw_line[:_LONGEST]
        if _FRAME.search(line) is not None:
            yield False, [(number, _SPACES.sub(" ", line))]
            return


def _continues(lines: Sequence[str], start: int) -> bool:
    """Return whether the next line that is not empty belongs to the same traceback."""
    numbers = (number for number in range(start, len(lines)) if lines[number].strip())
    following = lines[number][:_LONGEST] if (number := next(numbers, None)) is not None else ""
    return any(
        regex.search(following) is not None for regex in (_FRAME, _RAISED, _HEADER, _MARK, _SOURCE)
    )


def _executed_lines(lines: Sequence[str]) -> set[int]:
    """Return the numbers of all lines without the source lines around those that failed."""
    cells = [_CELL_LINE.match(line) for line in lines]
    if not any(cell and cell["arrow"] for cell in cells):
        return {*range(1, len(lines) + 1)}
    executed, raises = set[int](), False
    for number, (line, cell) in enumerate(zip(lines, cells, strict=True), 1):
        if cell is None or cell["arrow"]:
            raises = cell is not None and _RAISE.match(line, cell.end()) is not None
            executed.add(number)
        elif raises:
            executed.add(number)
    return executed


def _group_lines(lines: list[str]) -> Iterator[tuple[bool, list[tuple[int, str]]]]:
    """Yield the lines of each message, and whether the message begins with an exception."""
    raised, group, in_frame = False, list[tuple[int, str]](), False
    executed = _executed_lines(lines)
    for number, raw_line in enumerate(lines, 1):
        if number not in executed:
            continue
        line = _SCRIPTS_WITHOUT_SPACES.sub(" ", raw_line[:_LONGEST])
        starts = _RAISED.search(line[:400]) is not None
        is_frame = not starts and (_FRAME.search(line) is not None)
        ends = starts or is_frame or _HEADER.search(line) is not None
        if (ends or (not raised and not line.strip())) and group:
            yield raised, group
            raised, group = False, []
        if ends:
            in_frame, raised = is_frame, starts
        if is_frame or (ends and not starts):
            continue
        if in_frame:  # the source line below a frame
            in_frame = _MARK.match(line) is not None
            if not _RAISE.match(line) or _continues(lines, number):
                continue
        line = _SPACES.sub(" ", line)
        if line.strip() and not _MARK.match(line):
            group.append((number, line))
    if group:
        yield raised, group


EARLIER: Final = 0.8
"""The weight of a match in an exception that is not the last."""

OUTSIDE: Final = 0.5
"""The weight of a match outside of an exception, in a text that contains one."""

MOST: Final = 3
"""Maximum number of entries in the result."""

_SHARE: Final = 0.5
"""Matches with at most this share of the best confidence are left out."""


class Match(Struct, frozen=True, kw_only=True):
    """An entry that a text matches."""

    entry: Entry
    confidence: float
    """From 0 to 1."""

    line: int
    """The number of the line in which the match begins, from 1."""

    text: str
    """The text of this line, without colors."""


class TestedModel(Struct, frozen=True, kw_only=True):
    """What a release does with the model that a message is about."""

    path: str
    release: str
    """The display name of the release that the answer is for."""

    loads: bool | None
    """Whether the release loads the model with ``compile=False``; None if it is unknown."""

    reason: str | None
    """
    Why the model, or else its training configuration, fails to load or is unknown; None if both
    load.
    """

    is_compiled: bool
    """Whether the release is known to load the training configuration as well; True without one."""

    arguments: tuple[str, ...] | None
    """The arguments after ``policytool migrate PATH`` that fix the model; None without a fix."""


class Explanation(Struct, frozen=True, kw_only=True):
    """The entries that explain an error message, the best first."""

    matches: tuple[Match, ...]
    model: TestedModel | None = None
    """The model that was tested, which can contradict the entries; None without."""

    path: str = ""
    """The last model that the text names; empty if it names none."""

    release: str = ""
    """The target for the release that printed the text; empty if the text does not show it."""


_MODEL: Final = re.compile(
    r"""(?x)
      (?<![+\w])(?<!\+\ )[ubrf]{0,2}
      ['\"] (?P<quoted>[^'\"\n<>|]{1,300}\.(?:h5|hdf5|keras|json|ya?ml)) ['\"]
    | [(=\ ] (?P<bare>(?:/[^'\"()=\s<>|,:;]{1,200}[^'\"()=\s<>|,:;./]\ (?=[^/\s]{1,60}/))?
        [^'\"()=\s<>|]{1,300}\.(?:h5|hdf5|keras|json|ya?ml)) (?=[)\s,:;]|\.\s|$)
    | load_model\(['\"] (?P<loaded>[^'\"\s]{1,300}) ['\"]
    | file\ does\ not\ exist\ at:\  (?P<saved>[^\s'\"{]{1,300}?) (?=[/\\]?\{|\s|$)"""
)
"""The path of a model in a traceback: by its suffix, or by its place."""

_READS_JSON: Final = re.compile(r"model_from_|load(?:Layers|Graph|Frozen)?Model|tfjs|tensorflowjs")
"""Functions that read JSON or YAML as a model; such files of other programs are settings."""

_MARKS: Final = (
    ("exported/", re.compile(r"saved_model[/\\]load|_tf_keras_[a-z]")),
    ("model.keras", re.compile(r"saving_lib\.py")),
)
"""What shows the format of a model that a traceback does not name, and the name of an example."""

_PLACEHOLDERS: Final = ("model.h5", "model.keras", "model.json", "model.yaml", "exported/")
_EXAMPLE_TARGET: Final = re.compile(r"--target (?:tf_keras|tf\d\S{1,8}|keras\d\.\S{1,4})(?!\S)")
"""A target that stands for the release that fails, other than the newest Keras."""

_THIS_TARGET: Final = re.compile(r"--target \S{1,20}")
"""A target in a step for "this release", which is the release that fails."""


def _model_path(text: str) -> str:
    """Return the path of the last model that a text names; empty if it names none."""
    settings = () if _READS_JSON.search(text) else (".json", ".yaml", ".yml")
    paths = [
        path
        for match in _MODEL.finditer(text)
        if not (path := match[match.lastgroup or 0]).endswith(
            ("config.json", "metadata.json", "weights.h5", *settings)
        )
        and "site-packages" not in path
        and "://" not in path
        and not re.match(
            r"[`*.\[{]|(?:tf|tensorflow)\.keras$|/$", path.removeprefix("./").removeprefix("../")
        )
    ]
    return paths[-1] if paths else ""


def _example_path(text: str) -> str:
    """Return the example of a model in the format that a text shows; empty if it shows none."""
    return next((name for name, mark in _MARKS if mark.search(text)), "")


def _failing_release(text: str) -> str:
    """
    Return the target for the release that a traceback shows; empty if unknown.

    Modules show a range of releases. The name of an environment, such as ``envs/tf2.3``, shows one,
    and counts if it does not contradict the modules.
    """
    by_modules = _shown_target("releases", text)
    by_environment = _shown_target("environments", text)
    if by_environment and _library(by_modules) in {"", _library(by_environment)}:
        return by_environment
    return by_modules


def _library(target: str) -> str:
    """Return the beginning of a target without its version: ``tf``, ``tf_keras`` or ``keras``."""
    return re.split(r"\d", target, maxsplit=1)[0]


def _shown_target(table: str, text: str) -> str:
    """Return the target of the first row of a table that matches; empty if none does."""
    for regex, target in targets_in_texts(table):
        if match := re.search(regex, text):
            return match.expand(target)
    return ""


@cache
def targets_in_texts(table: str) -> tuple[tuple[str, str], ...]:
    """
    Return expressions, and the target that each shows, in which a number stands for a group.

    :param table: the name of a table of ``shared.toml``: ``releases``, ``environments`` or
        ``examples``
    """
    return tuple((row["regex"], row["target"]) for row in _load_data("shared")[table])


class _Context(Struct, frozen=True, kw_only=True):
    """What a text shows about the model and the release, for commands; each may be empty."""

    model: str
    release: str
    example: str
    """A target instead of the one in the step, if the text excludes it, but shows no release."""


def _adapted(entry: Entry, context: _Context) -> Entry:
    """Return an entry whose commands name the model and the release of a traceback."""
    return replace(
        entry,
        check=_adapted_step(entry.check, context),
        fix=tuple(_adapted_step(step, context) for step in entry.fix),
    )


def _adapted_step(step: Step, context: _Context) -> Step:
    target = context.release or context.example
    if target and ("Keras 2" not in step.text or _library(target) != "keras"):
        targets = _THIS_TARGET if "this release" in step.text else _EXAMPLE_TARGET
        if example := targets.search(step.command):
            step = Step(
                text=_with_release(step.text, example[0].split()[1], target, context.release),
                command=targets.sub(f"--target {target}", step.command),
            )
    words = step.command.split()
    if context.model:
        position = words.index("--weights") + 1 if "--weights" in words else 2
        if words[position : position + 1] and words[position] in _PLACEHOLDERS:
            words[position] = _quoted(context.model)
    return replace(step, command=" ".join(words))


_FOR_EXAMPLE: Final = re.compile(r",? for example (?:for )?$")


def _with_release(text: str, example: str, target: str, release: str) -> str:
    """
    Return the text of a step that names the target of its command as an example.

    :param example: the target in the step
    :param target: the target that replaces it
    :param release: the target, if it is the release that fails, and no example
    """
    before, named, after = text.partition(_display_name(example))
    if not named or not before.endswith(" "):
        return text
    if release and (introduction := _FOR_EXAMPLE.search(before)) is not None:
        is_redundant = "this release" in before
        return (
            f"{before[: introduction.start()]}{after}"
            if is_redundant
            else f"{before[: introduction.start()]} for {_display_name(target)}{after}"
        )
    return f"{before}{_display_name(target)}{after}"


def _display_name(target: str) -> str:
    """Return the name of a target in a sentence."""
    if target == "keras3":
        return "the newest Keras"
    library, version = _library(target), target.removeprefix(_library(target))
    names = {"tf": "TF", "keras": "Keras"}
    return f"{names.get(library, library)} {version}".rstrip()


def _quoted(path: str) -> str:
    """Return a path for a shell, which replaces a tilde only outside of quotes."""
    return f"~/{shlex.quote(path[2:])}" if path[:2] == "~/" and path[2:] else shlex.quote(path)


class _Place(Struct, frozen=True, kw_only=True):
    """A message of the text, and the weight of matches in it."""

    message: Message
    texts: tuple[str, ...]
    weight: float


def explain_text(text: str, model: str | None = None) -> Explanation:
    """
    Return the entries that a text matches, the best first, and at most :data:`MOST`.

    :param model: the path that commands name; by default, the last one in the text
    :raises UsageError: if the text is empty or too long
    """
    if limit_message := MESSAGE_BYTES.exceeded_message(len(text)):
        raise UsageError(f"the error message has {limit_message}")
    lines = plain_lines(text)
    if not any(line.strip() for line in lines):
        raise UsageError("the error message is empty; paste a message or a whole traceback")
    full_text = "\n".join(lines)
    all_messages = messages(lines)
    best = _all_matches(all_messages, entries(), full_text, lines)
    if not _is_conclusive(best):
        unquoted = [message.without_quotes() for message in all_messages]
        unquoted_entries = [entry.without_quotes() for entry in entries()]
        best += _all_matches(unquoted, unquoted_entries, full_text, lines)
        if not _is_conclusive(best) and _may_be_retyped(full_text):
            any_case = (entry.without_case() for entry in unquoted_entries)
            best += _all_matches(unquoted, any_case, full_text, lines)
    best.sort(key=lambda match: (-match.confidence, -match.line))
    path, release = model or _model_path(full_text), _failing_release(full_text)
    context = _Context(
        model=path or _example_path(full_text),
        release=release,
        example="" if release else _shown_target("examples", full_text),
    )
    return Explanation(
        matches=tuple(
            replace(match, entry=_adapted(match.entry, context))
            for match in [*_worth_showing(best)][:MOST]
        ),
        path=path,
        release=release,
    )


def _may_be_retyped(text: str) -> bool:
    """Return whether a text is short and contains no name of a class, which a copy would have."""
    return len(text) <= _LONGEST and _MIXED_CASE.search(text) is None


def _is_conclusive(matches: Sequence[Match]) -> bool:
    """Return whether a match says more than the place of the error."""
    return any(match.confidence > Specificity.CONTEXT.value for match in matches)


def _all_matches(
    all_messages: Sequence[Message],
    all_entries: Iterable[Entry],
    full_text: str,
    lines: Sequence[str],
) -> list[Match]:
    """Return the match of each entry that matches a message, in the order of the entries."""
    places = [
        _Place(message=message, texts=message.joined_lines(), weight=weight)
        for message, weight in zip(all_messages, _weights(all_messages), strict=True)
    ]
    all_texts = "\n".join(text for place in places for text in place.texts)
    return [
        match
        for entry in all_entries
        if (match := _best_match(entry, places, all_texts, full_text, lines)) is not None
    ]


def _worth_showing(best: Sequence[Match]) -> Iterator[Match]:
    """Yield the matches to report, the best first, as the docstring of the module describes."""
    highest: dict[int, float] = {}
    shown = set[str]()
    for match in best:
        if match.entry.id in shown:
            continue
        shown.add(match.entry.id)
        if match.confidence > best[
            0
        ].confidence * _SHARE and match.confidence >= highest.setdefault(
            match.line, match.confidence
        ):
            yield match


def _weights(messages: Sequence[Message]) -> list[float]:
    """Return the weight of matches in each message."""
    if not any(message.is_exception for message in messages):
        return [1.0] * len(messages)
    return [
        (1.0 if message.is_last else EARLIER) if message.is_exception else OUTSIDE
        for message in messages
    ]


def _best_match(
    entry: Entry,
    weighted_messages: Sequence[_Place],
    all_texts: str,
    full_text: str,
    lines: Sequence[str],
) -> Match | None:
    """Return the match of an entry with the highest confidence; the last of equal matches."""
    best: tuple[float, int] | None = None
    for pattern in entry.patterns:
        # thousands of messages take seconds one by one
        if not pattern.regex.search(all_texts) or not pattern.is_needed(full_text):
            continue
        hits = [
            (round(pattern.specificity.value * place.weight, 2), line)
            for place in weighted_messages
            if (line := _first_line(pattern, place)) is not None
        ]
        if hits:
            best = max(hits if best is None else [best, *hits])
    if best is None:
        return None
    confidence, line = best
    return Match(entry=entry, confidence=confidence, line=line, text=lines[line - 1].strip())


def _first_line(pattern: Pattern, place: _Place) -> int | None:
    """Return the line of the first match in a message; None if there is none."""
    for number, text in enumerate(place.texts):
        if match := pattern.regex.search(text):
            return place.message.line_at(match.start(), number)
    return None
