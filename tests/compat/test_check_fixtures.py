"""
Every fixture is checked under mixed_float16 and mixed_bfloat16, or refused for a reason that is on
the list.

A sample of a few releases of each case, library and format, under the two policies in turn; every
file is checked under both with ``POLICYTOOL_SAMPLE=all``. One child does it all.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pytest

from policytool.commands import check as checks
from policytool.commands.check_options import CheckOptions
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.numerics.tensorflow_run import TensorFlowTools
from policytool.support.errors import PolicytoolError
from tests.compat.cases import CASES, KERAS, RELEASES, TF_KERAS
from tests.helpers.paths import FIXTURES
from tests.helpers.sampling import EVERY_CASE, LIBRARY_SHARE, sampled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policytool.numerics.check_results.checks import Check
    from tests.model.test_truth import Case

EVERY: Final = "every-layer"
"""What happens if the kept layers follow the policy too, which is no fault."""

pytestmark = [pytest.mark.compat, pytest.mark.xdist_group("checks of fixtures")]

POLICIES: Final = ("mixed_float16", "mixed_bfloat16")
ARCHITECTURES: Final = ("json", "yaml")
LOADS: Final[dict[str, Any]] = json.loads((FIXTURES / "loads.json").read_text(encoding="utf-8"))[
    "loads"
]

UNBUILT: Final = ("sequential_unbuilt_input", "infer_unbuilt", "subclassed")
"""Cases whose architecture has no input shape."""

LEARNT: Final = ("text_vectorization", "string_lookup", "integer_lookup")
"""Cases with a vocabulary."""

RELEASES_OF_EACH: Final = 2
"""
How many releases each case is checked of, in each library and format; those of a case make nearly
the same model.
"""

CLASSES: Final = """
from writer import api, custom_classes
CLASSES = custom_classes.classes(api.open_release("{}"))
"""


@dataclass(frozen=True, kw_only=True)
class Checked:
    """What became of one fixture under one policy."""

    case: Case
    to: str
    check: Check | None
    code: str | None = None
    message: str = ""

    @property
    def name(self) -> str:
        """The fixture and the policy, for messages."""
        return f"{self.case.folder}/{self.case.file} to {self.to}"


def library(case: Case) -> str:
    """Return the library that a file runs in."""
    return KERAS if case.keras3 else TF_KERAS


def is_refused_by_its_library(one: Checked) -> bool:
    """Return whether the real library said no to the very file when it was asked."""
    row = LOADS.get(f"{one.case.folder}/{one.case.file}")
    return row is not None and library(one.case) not in row.get("ok", "").split()


REFUSED: Final[tuple[tuple[str, str, Callable[[Checked], bool]], ...]] = (
    (
        "not-loadable",
        "the newest library of the file's family does not load it",
        is_refused_by_its_library,
    ),
    ("runs-code", "a Lambda holds byte code", lambda one: one.case.name == "lambda"),
    (
        "quantized",
        "Keras 3 has no such quantised policy over float16",
        lambda one: one.to == "mixed_float16",
    ),
    (
        "no-inputs",
        "nothing in the file says what the model takes",
        lambda one: one.case.name in UNBUILT and one.case.format in ARCHITECTURES,
    ),
    (
        "no-weights",
        "an architecture has no vocabulary",
        lambda one: one.case.name in LEARNT and one.case.format in ARCHITECTURES,
    ),
    (
        "not-callable",
        "an architecture has no vocabulary",
        lambda one: one.case.name in LEARNT and one.case.format in ARCHITECTURES,
    ),
)
"""Code, reason, and which fixtures may be refused with it."""


def _spread() -> Iterator[tuple[Case, str]]:
    """Yield a few releases of each case, or all."""
    seen: Counter[tuple[str, ...]] = Counter()
    for case in sorted(
        CASES, key=lambda case: zlib.crc32(case.path.removeprefix(str(FIXTURES)).encode())
    ):
        kind = (
            case.name,
            library(case),
            "architecture" if case.format in ARCHITECTURES else case.format,
        )
        turn = POLICIES[(zlib.crc32(case.name.encode()) + seen[kind]) % len(POLICIES)]
        seen[kind] += 1
        if EVERY_CASE or seen[kind] <= (1 if case.format in ARCHITECTURES else RELEASES_OF_EACH):
            yield from ((case, to) for to in (POLICIES if EVERY_CASE else (turn,)))


CHOSEN: Final = sampled("checked fixtures", _spread(), share=LIBRARY_SHARE)
"""What is checked in this run, each with its policy."""


@dataclass(kw_only=True)
class CheckedFixtures:
    """What is chosen, checked when a test asks for its release: all of it takes many minutes."""

    tools: TensorFlowTools
    path: tuple[str, ...]
    done: dict[str, tuple[Checked, ...]] = field(default_factory=dict)

    def of(self, release: str) -> tuple[Checked, ...]:
        """Return the fixtures of a release."""
        if release not in self.done:
            self.done[release] = tuple(
                _checked(case, to, self.tools, self.path)
                for case, to in CHOSEN
                if case.release == release
            )
        return self.done[release]

    def every(self) -> tuple[Checked, ...]:
        """Return the fixtures of all releases."""
        return tuple(checked for release in RELEASES for checked in self.of(release))


@pytest.fixture(scope="module")
def fixtures(tools: TensorFlowTools, tmp_path_factory: pytest.TempPathFactory) -> CheckedFixtures:
    """Check what is chosen."""
    modules = tmp_path_factory.mktemp("modules")
    for release in (TF_KERAS, KERAS):
        (modules / f"classes_{release.partition('.')[0]}.py").write_text(
            CLASSES.format(release), encoding="utf-8"
        )
    return CheckedFixtures(tools=tools, path=(str(FIXTURES), str(modules)))


def _checked(case: Case, to: str, tools: TensorFlowTools, path: tuple[str, ...]) -> Checked:
    own = TensorFlowTools(
        worker=tools.worker,
        custom_objects=(f"classes_{library(case).partition('.')[0]}:CLASSES",),
        path=path,
    )
    (result,) = discovery.inputs([case.path])
    try:
        return Checked(
            case=case,
            to=to,
            check=checks.check(
                result, None, CheckOptions(candidate=Options(to=to), isolated=True), own
            ),
        )
    except PolicytoolError as error:
        return Checked(
            case=case,
            to=to,
            check=None,
            code=getattr(error, "code", type(error).__name__),
            message=str(error),
        )


@pytest.mark.parametrize("release", RELEASES)
def test_fixtures_pass_or_fail_for_a_known_reason(
    fixtures: CheckedFixtures, count: Callable[..., None], release: str
) -> None:
    """
    Outputs are finite, default tolerances hold, and each layer has a counterpart. Fixtures that
    cannot be checked are listed.
    """
    wrong = []
    for item in fixtures.of(release):
        if item.check is not None:
            wrong += [
                f"{item.name}: {text}"
                for text in _faults(
                    item.check,
                    graph=item.case.format == "savedmodel" and is_refused_by_its_library(item),
                )
            ]
        elif not any(item.code == code and may(item) for code, _, may in REFUSED):
            wrong.append(f"{item.name}: {item.code}: {item.message}")
        done = item.check is not None
        count(
            library(item.case),
            f"checked {item.case.format}",
            files=1,
            load=done,
            refused=not done,
            layers=sum(map(_calls, [item.check] if item.check else [])),
        )
    assert not wrong, "\n".join(wrong)


def _calls(check: Check) -> int:
    return sum(len(run.calls) for run in check.runs)


def _faults(check: Check, *, graph: bool) -> Iterator[str]:
    """Yield what is wrong with a check; ``graph`` where the model can only run as one."""
    for run in check.runs:
        yield from (
            f"{missed.path} {missed.ruling}: {missed.error} above {missed.tolerance}"
            for missed in run.verdict.missed
        )
        yield from (f"{path} is called by one of the two models alone" for path in run.unmatched)
        yield from (f"{missing.layer} has no kernel of {missing.type}" for missing in run.missing)
        if not graph and not any(
            output.isolated is not None for call in run.calls for output in call.outputs
        ):
            yield "no layer was measured by itself"
        if not run.outputs or any(
            output.accumulated is None or output.accumulated.overflow for output in run.outputs
        ):
            yield "an output is not finite or was not compared"
    yield from (
        f"{note.code}: {note.message}"
        for note in check.notes
        if note.code not in ({"graph", EVERY} if graph else {EVERY})
    )


def test_most_are_checked(fixtures: CheckedFixtures) -> None:
    """The tests above are about something, in both libraries and every format."""
    checked = fixtures.every()
    # Of the few of a sample, more can be among those that are refused.
    least = 0.85 if EVERY_CASE else 0.65
    assert sum(item.check is not None for item in checked) > least * len(checked)
    formats = {(library(item.case), item.case.format) for item in checked}
    assert not EVERY_CASE or {
        (library(item.case), item.case.format) for item in checked if item.check is not None
    } >= formats - {(KERAS, "yaml"), (TF_KERAS, "yaml")}


def test_failures_of_check_are_sentences(fixtures: CheckedFixtures) -> None:
    """No failure is an internal error, and each message describes the problem."""
    for item in fixtures.every():
        assert item.code not in {"failed", "worker-crashed", "memory", "worker-garbage"}, (
            item.name,
            item.message,
        )
        assert item.check is not None or len(item.message.split()) > 6
