"""HTML reports of every command, and those that are hard to show: hostile, long and empty."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from policytool.commands import inspect as inspection
from policytool.commands.destinations import Destination
from policytool.commands.diff import try_diff
from policytool.commands.migrate import Migration
from policytool.commands.migrate_all import migrate_all
from policytool.commands.summary import SummaryRequest, model_record, summarize
from policytool.formats import discovery
from policytool.migration.planning.options import Options
from policytool.model.model import Layer, Model, Source, Variable, Writer
from policytool.reports import View
from policytool.reports.checks import CHECK_REPORTERS
from policytool.reports.differences import DIFFERENCE_REPORTERS, Differences
from policytool.reports.findings import FINDING_REPORTERS
from policytool.reports.inspection import REPORTERS
from policytool.reports.plans import PLAN_REPORTERS, Migrations
from policytool.reports.summaries import SUMMARY_REPORTERS
from policytool.reports.tuning import TUNE_REPORTERS
from tests.contracts.reporter_contract import MODELS, inspected
from tests.helpers import example_audits, example_checks, example_tunings
from tests.helpers.drawn_models import whole
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from policytool.commands.inspect import SelectedInspection
    from policytool.commands.summary import FleetSummary
    from policytool.reports import Reporter
    from policytool.reports.checks import Checks
    from policytool.reports.tuning import Tunings

Value = TypeVar("Value")

HOSTILE: Final = (
    "<img src=x onerror=window.hit=1>",
    "</script><script>window.hit=1</script>",
    "\" onmouseover='window.hit=1' x=\"",
    "{{ 7*7 }}{% raw %}",
    "javascript:window.hit=1",
    "\u202egnp.\u2066\x1b[31m\n::error::",
    "&lt;b&gt;`<b>`",
)
"""Names that would do something in a page that trusted them."""

LONG: Final = 1000
"""Layers of a long page."""


def html(reporters: Sequence[Reporter[Value]]) -> Reporter[Value]:
    """Return the HTML reporter."""
    return next(reporter for reporter in reporters if reporter.name == "html")


def layer(path: str, dtype: str = "float32") -> Layer:
    """Return a dense layer."""
    return Layer(
        path=path,
        name=path.rpartition("/")[2],
        class_name="Dense",
        policy=dtype,
        compute_dtype=dtype,
        variable_dtype=dtype,
        source=Source.DECLARED,
        variables=(Variable(name="kernel", shape=(4, 4), dtype=dtype),),
    )


def model(path: str, layers: Sequence[Layer]) -> Model:
    """Return a model of these layers."""
    return Model(path=path, format="h5", generation="keras3", writer=Writer(), layers=tuple(layers))


def hostile_graph() -> SelectedInspection:
    """Return a chain of layers with hostile names, which has a graph."""
    paths = [f"net/{name.replace('/', '~1')}" for name in HOSTILE]
    layers = [
        replace(layer(path, dtype), name=path[4:], inputs=tuple(paths[max(0, at - 1) : at]))
        for at, (path, dtype) in enumerate(zip(paths, ["float32", "float16"] * 4, strict=False))
    ]
    return whole(model("graph.h5", [layer("net"), *layers]))


def chain(paths: Sequence[str]) -> tuple[Layer, ...]:
    """Return layers that use the outputs of the layer before them."""
    before = [(), *((path,) for path in paths)]
    return tuple(replace(layer(path), inputs=before[at]) for at, path in enumerate(paths))


def hostile_model() -> SelectedInspection:
    """Return a model whose path and layers have hostile names."""
    names = [name.replace("/", "~1") for name in HOSTILE]
    return whole(model(HOSTILE[0], [layer("net"), *(layer(f"net/{name}") for name in names)]))


def long_model() -> SelectedInspection:
    """Return a model of many layers, in blocks."""
    layers = [layer("net")]
    for number in range(LONG - 1):
        block = f"net/block_{number // 10}"
        layers.append(
            layer(f"{block}/dense_{number}", "float16" if number % 7 == 0 else "float32")
            if number % 10
            else layer(block)
        )
    return whole(model("long.h5", layers))


def checked() -> Checks:
    """Return a check in which every layer's values were counted by exponent."""
    result = example_checks.CASES["failing"]
    assert result.check is not None
    runs = tuple(
        replace(
            run,
            calls=tuple(
                replace(
                    call,
                    outputs=tuple(
                        replace(output, exponents=((-20, 5), (-3, 700), (2, 40 + at), (17, at % 3)))
                        for output in call.outputs
                    ),
                )
                for at, call in enumerate(run.calls)
            ),
        )
        for run in result.check.runs
    )
    layers = chain(["net/input", *(call.path for call in runs[0].calls if not call.is_model)])
    return replace(result, check=replace(result.check, runs=runs, connected_layers=layers))


def tuned() -> Tunings:
    """Return a search in a model whose connections are known."""
    result = example_tunings.CASES["passing"]
    assert result.tuning is not None
    layers = chain(["net/input", *(layer.path for layer in result.tuning.layers)])
    return replace(result, tuning=replace(result.tuning, connected_layers=layers))


def converted() -> Migrations:
    """Return a conversion that is only planned."""
    inputs = list(discovery.inputs([str(FIXTURES / "tf2.3/exp_mf16_fixed128.h5")]))
    result = migrate_all(inputs, Options(target="keras3.15"), Destination(write=False))
    return Migrations(
        migrations=tuple(item for item in result if isinstance(item, Migration)), failures=()
    )


def compared() -> Differences:
    """Return the differences between two models."""
    paths = (FIXTURES / "tf2.15/wrappers.h5", FIXTURES / "keras3.15/wrappers.keras")
    return Differences(outcome=try_diff(*map(str, paths)))


def summary(selected: SelectedInspection) -> FleetSummary:
    """Return the summary of models."""
    request = SummaryRequest()
    return summarize(
        (model_record(model, request) for model in selected.inspection.models), request
    )


def long_graph() -> SelectedInspection:
    """Return a chain of many layers, in blocks, whose connections are known."""
    paths = [f"net/block{number // 10}_dense_{number}" for number in range(LONG)]
    layers = [replace(one, name=one.path[4:]) for one in chain(paths)]
    return whole(model("graph.h5", [layer("net"), *layers]))


def repeated() -> SelectedInspection:
    """Return a model with equal blocks, which tables fold, and the parameters of its layers."""
    layers = [layer("net")]
    for number in range(LONG // 40):
        block = f"net/block_{number}"
        sizes = [replace(layer(f"{block}/dense_{at}"), created_parameters=at) for at in range(9)]
        layers += [layer(block), *(replace(one, variables=()) for one in sizes)]
    return whole(model("repeated.h5", layers))


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "inspect": lambda: html(REPORTERS).render(inspected(*MODELS), View()),
    "audit": lambda: html(FINDING_REPORTERS).render(example_audits.made(), View()),
    "migrate": lambda: html(PLAN_REPORTERS).render(converted(), View()),
    "diff": lambda: html(DIFFERENCE_REPORTERS).render(compared(), View()),
    "check": lambda: html(CHECK_REPORTERS).render(checked(), View()),
    "tune": lambda: html(TUNE_REPORTERS).render(tuned(), View()),
    "summary": lambda: html(SUMMARY_REPORTERS).render(summary(inspected(*MODELS)), View()),
    "hostile summary": lambda: html(SUMMARY_REPORTERS).render(summary(hostile_model()), View()),
    "hostile": lambda: html(REPORTERS).render(hostile_model(), View()),
    "hostile check": lambda: html(CHECK_REPORTERS).render(example_checks.CASES["hostile"], View()),
    "hostile tune": lambda: html(TUNE_REPORTERS).render(example_tunings.CASES["hostile"], View()),
    "hostile graph": lambda: html(REPORTERS).render(hostile_graph(), View()),
    "long": lambda: html(REPORTERS).render(long_model(), View()),
    "long graph": lambda: html(REPORTERS).render(long_graph(), View()),
    "repeated": lambda: html(REPORTERS).render(repeated(), View()),
    "empty": lambda: html(REPORTERS).render(
        inspection.select(inspection.collect([]), inspection.Selection()), View()
    ),
}
"""By name, what makes the page."""


@cache
def page(name: str) -> str:
    """Return a page."""
    return PAGES[name]()


def files() -> Mapping[str, str]:
    """Return the files of a directory."""
    directory = html(FINDING_REPORTERS).render_directory
    assert directory is not None
    return directory(example_audits.made(), View())
