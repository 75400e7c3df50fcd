"""The reports of migrate: golden files, the schema, and a diff that is one."""

from __future__ import annotations

import json
import subprocess
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, Final

import pytest

from policytool.commands.destinations import Destination
from policytool.commands.migrate import Migration
from policytool.commands.migrate_all import migrate_all
from policytool.formats import discovery
from policytool.migration.planning.options import Options, Outputs, assignment
from policytool.reports import View
from policytool.reports.plans import PLAN_REPORTERS, Migrations
from tests.contracts.report_contract import ReportContract
from tests.contracts.reporter_contract import compared, rendered_by
from tests.helpers.paths import FIXTURES, ROOT
from tests.helpers.small_models import LOSS_SCALED, dense, h5_model, sequential

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("in_the_root")

CASES: Final[dict[str, tuple[str, Options]]] = {
    "modernise": ("tf2.3/exp_mf16_fixed128.h5", Options()),
    "uncompiled": ("tf2.3/exp_mf16_fixed128_uncompiled.h5", Options()),
    "to_mixed": ("tf2.15/rnn_mixed.h5", Options(to="mixed_bfloat16")),
    "to_float32": ("keras3.15/adam_autowrap_mf16.keras", Options(to="float32")),
    "refused": ("keras3.15/int8.keras", Options(to="mixed_float16")),
    "unchanged": ("keras3.15/default_float32.h5", Options()),
    "target": (
        "tf2.3/exp_mf16_fixed128.h5",
        Options(to="mixed_bfloat16", outputs=Outputs.FOLLOW, target="tf2.4"),
    ),
    "set": (
        "tf2.15/global_mixed_float16.h5",
        Options(assignments=(assignment("mlp/(norm|dense_a)=float64"),)),
    ),
    "unneeded_target": ("tf2.15/global_mixed_float16.h5", Options(target="tf2.4")),
    "converted": ("keras3.15/adam_autowrap_mf16.keras", Options(target="tf2.4")),
    "converted_to": (
        "tf2.15/default_float32_compiled.h5",
        Options(
            to="mixed_bfloat16",
            assignments=(assignment("mlp/dense_a=mixed_bfloat16"),),
            target="keras3.15",
        ),
    ),
    "converted_weights": (
        "tf2.15/rnn_mixed.h5",
        Options(target="keras3.15", allow_weight_rewrite=True),
    ),
    "unconverted": ("tf2.15/subclassed.keras", Options(target="keras3.15")),
}


@cache
def planned(name: str) -> Migrations:
    """Return the plan of a case, which is not carried out."""
    file, options = CASES[name]
    inputs = list(discovery.inputs([str((FIXTURES / file).relative_to(ROOT))]))
    return Migrations(
        migrations=tuple(
            found
            for found in migrate_all(inputs, options, Destination(write=False))
            if isinstance(found, Migration)
        ),
        failures=(),
    )


class TestPlans(ReportContract):
    name = "migrate"
    reporters = PLAN_REPORTERS
    cases: ClassVar = {name: partial(planned, name) for name in CASES}
    page = "to_mixed"


def test_markdown_escapes_names(tmp_path: Path) -> None:
    """A layer whose name is markup is one cell of text."""
    path = h5_model(tmp_path / "a|b.h5", sequential(dense("x|<b>`@y", dtype=LOSS_SCALED)))
    actual = tuple(
        item
        for item in migrate_all(
            list(discovery.inputs([str(path)])), Options(), Destination(write=False)
        )
        if isinstance(item, Migration)
    )
    text = rendered_by(PLAN_REPORTERS, "markdown", Migrations(migrations=actual, failures=()))
    assert "mlp/x|" not in text
    assert "mlp&#47;x&#124;&#60;b&#62;&#96;&#64;y" in text
    assert {line.count("|") for line in text.splitlines()} <= {0, 5}


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("converted")])
def test_diff_of_a_conversion_equals_the_golden_file(name: str) -> None:
    """The diff contains both complete configs, because a conversion writes a new file."""
    compared(rendered_by(PLAN_REPORTERS, "diff", planned(name)), f"migrate-{name}.diff")


def test_blocked_conversion_has_no_diff() -> None:
    """Such a conversion has no resulting config."""
    assert rendered_by(PLAN_REPORTERS, "diff", planned("unconverted")) == ""


@pytest.mark.parametrize("name", CASES)
def test_a_diff_leads_from_one_config_to_the_other(name: str, tmp_path: Path) -> None:
    """Patch accepts it: applied to the indented config it gives the migrated one."""
    from policytool.formats.format_detection import document
    from policytool.migration.plan import apply_edits

    (migration,) = planned(name).migrations
    text = rendered_by(PLAN_REPORTERS, "diff", planned(name))
    edited = [edit for edit in migration.plan.edits if not migration.plan.refusals]
    after = apply_edits(document(migration.source, migration.plan.path), edited, ())
    for part, value in migration.parts.items():
        begins = [
            index
            for index, line in enumerate(text.splitlines())
            if line == f"--- {migration.plan.path} {part}"
        ]
        conversion = migration.plan.conversion
        if not begins or not (edited or conversion):
            continue
        lines = text.splitlines()[begins[0] :]
        end = next(
            (index for index, line in enumerate(lines) if index and line.startswith("--- ")),
            len(lines),
        )
        config, patch = tmp_path / "config.json", tmp_path / "change.patch"
        config.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        patch.write_text("\n".join(lines[:end]) + "\n", encoding="utf-8")
        subprocess.run(
            [
                "git",
                "apply",
                "--unsafe-paths",
                "--directory",
                str(tmp_path),
                "-p0",
                str(_named(patch, config.name)),
            ],
            check=True,
            cwd=tmp_path,
        )
        assert json.loads(config.read_text(encoding="utf-8")) == (
            conversion.content.config if conversion is not None else after.parts[part]
        )


def _named(patch: Path, name: str) -> Path:
    """Return the patch with the plain name of the file that it is for."""
    lines = patch.read_text(encoding="utf-8").splitlines()
    patch.write_text("\n".join([f"--- {name}", f"+++ {name}", *lines[2:]]) + "\n", encoding="utf-8")
    return patch


def table(file: str, options: Options) -> str:
    """Return the table of a fixture's plan."""
    inputs = list(discovery.inputs([str((FIXTURES / file).relative_to(ROOT))]))
    result = Migrations(
        migrations=tuple(
            item
            for item in migrate_all(inputs, options, Destination(write=False))
            if isinstance(item, Migration)
        ),
        failures=(),
    )
    return rendered_by(PLAN_REPORTERS, "table", result, View(width=200))


def test_optimizer_in_two_files_has_one_row() -> None:
    rows = [
        line
        for line in table("tf2.5/exp_mf16_fixed128", Options()).splitlines()
        if line.strip().startswith("LossScaleOptimizer")
    ]
    assert len(rows) == 1


def test_unknown_results_of_a_conversion_are_reported() -> None:
    """The effect of a custom class is unknown, and op layers of TF 2.4 call known functions."""
    assert "TF 2.4: Pair is a custom class" in table(
        "keras3.15/custom_layer.h5", Options(target="tf2.4")
    )
    assert "loads in TF 2.4" in table("keras3.15/keras_ops.h5", Options(target="tf2.4"))


def test_target_is_suggested_only_if_useful() -> None:
    """Releases that load all layers from their graphs are not suggested."""
    text = table("tf2.1/global_mixed_float16", Options(to="float32"))
    assert "from their traces" in text
    assert "--target" not in text
    assert "; use --target tf2.4 to support it" in table(
        "tf2.3/global_mixed_float16", Options(to="mixed_bfloat16")
    )
