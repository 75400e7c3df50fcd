"""The page of the file formats: what policytool reads, says, writes and verifies of each."""

from __future__ import annotations

import gzip
import inspect
import json
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policytool.formats import FORMATS, WITHOUT_WEIGHTS, other_models
from policytool.model.compatibility import NOT_LOADED
from policytool.numerics.verification import format_obstacle

if TYPE_CHECKING:
    from policytool.formats import Format

WEIGHTS: Final = "weights"
"""The document format of files that contain only weights."""

PRESETS: Final = Path(__file__).parent.parent.parent / "fixtures" / "presets.json.gz"

COLUMNS: Final = (
    "format",
    "policies",
    "variables",
    "values",
    "verdicts",
    "edited",
    "created",
    "predictions compared",
)


def formats_page() -> str:
    """Return the page as Markdown."""
    lines = [
        "# File formats",
        "",
        (
            "`make docs` generates this page from `policytool/formats/`. The content of a file "
            "or directory decides its format, not its name."
        ),
        "",
        f"| {' | '.join(COLUMNS)} |",
        f"|{' --- |' * len(COLUMNS)}",
        *(f"| {' | '.join(_cells(file_format))} |" for file_format in FORMATS),
        "",
        "- **policies**: the config of the model is read, with the policy of each layer.",
        "- **variables**: their names, shapes and dtypes are listed, without reading values.",
        "- **values**: `diff`, `audit --weights` and conversions read the values.",
        "- **verdicts**: `inspect` and `audit` list the releases that load the file.",
        "- **edited**: `migrate` changes policies in place or in a copy, byte for byte otherwise.",
        "- **created**: `migrate --target` writes models in this format.",
        "- **predictions compared**: `migrate` can run the model before and after a change.",
        "",
        "## KerasHub presets",
        "",
        (
            "A preset is one model: the backbone in `config.json`, with the layers that its "
            "weights files name. Their policies follow from the policy or the policy map of the "
            "backbone. Layers without variables are not listed. `task.json` and its weights add "
            "the layers of the task, whose policies are not stored."
        ),
        "",
        (
            "`from_preset` of KerasHub 0.22 and later replaces the stored policy by the global "
            "policy. A policy map of quantized layers is kept only by tasks with a `task.json`, "
            "and if it is passed as `dtype`; the backbone alone fails to load. `migrate --to` "
            "changes the policy in `config.json` and `task.json`, and no weights."
        ),
        "",
        (
            "No table of families is needed. The results were compared with the layers that "
            f"KerasHub 0.32.0 loads for {', '.join(_preset_families())}."
        ),
        "",
        "## Formats that are named but not read",
        "",
        (
            "For these files, the error message contains the format, the dtypes of the stored "
            "tensors if a header lists them, and a program that shows the contents."
        ),
        "",
        "| format | dtypes | shown by |",
        "| --- | --- | --- |",
        *(
            f"| {model.title.partition(' ')[2]} | {_mark(model.dtypes)} | {model.tool} |"
            for model in other_models.MODELS
        ),
        "",
    ]
    return "\n".join(lines)


def _cells(file_format: Format) -> tuple[str, ...]:
    name = file_format.document_format
    has_policies, has_variables = name != WEIGHTS, name not in WITHOUT_WEIGHTS
    is_written = file_format.is_rewritten or bool(file_format.creator_maker)
    runs = has_policies and has_variables and format_obstacle(name) is None
    marks = (
        has_policies,
        has_variables,
        bool(file_format.values_opener),
        has_policies and name not in NOT_LOADED,
        file_format.is_rewritten,
        bool(file_format.creator_maker),
        is_written and runs,
    )
    return (_description(file_format), *map(_mark, marks))


def _description(file_format: Format) -> str:
    """Return the first words about a format in the documentation of its module."""
    text = " ".join((inspect.getdoc(import_module(file_format.package)) or "").split())
    return re.split(r"[:,]|\.(?: |$)", text)[0].replace("``", "`")


def _mark(holds: object) -> str:
    return "yes" if holds else "no"


def _preset_families() -> list[str]:
    """Return the families of backbones whose presets were measured."""
    return sorted(json.loads(gzip.decompress(PRESETS.read_bytes())))
