"""The page of the file formats: what policytool reads, says, writes and verifies of each."""

from __future__ import annotations

import gzip
import inspect
import json
import re
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from policytool.formats import CONVERTED, FORMATS, WITHOUT_WEIGHTS, other_models
from policytool.model.compatibility import NOT_LOADED
from policytool.numerics.verification import format_obstacle

if TYPE_CHECKING:
    from policytool.formats import Format

WEIGHTS: Final = "weights"
"""The document format of files that contain only weights."""

PRESETS: Final = Path(__file__).parent.parent.parent / "fixtures" / "presets.json.gz"

COLUMNS: Final = ("format", "read", "verdicts", "edited", "converted", "created", "verified")


def formats_page() -> str:
    """Return the page as Markdown."""
    families = json.loads(gzip.decompress(PRESETS.read_bytes()))
    tasks = [family for family in families if "task" in families[family]]
    saved = [preset for family in tasks for preset in families[family]["task"].values()]
    loaded = sum(all(isinstance(item, dict) for item in task["loaded"].values()) for task in saved)
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
        (
            "- **read**: the policy of each layer in the config; the names, shapes and dtypes of "
            "variables; their values, for `diff`, `audit --weights` and conversions."
        ),
        "- **verdicts**: `inspect` and `audit` list the releases that load the file.",
        (
            "- **edited**: `migrate` changes policies in place or in a copy. All else stays, byte "
            "for byte, except for the layout of YAML."
        ),
        (
            "- **converted**: `migrate --target` converts the file for another release; weights "
            "together with their architecture (`--weights`)."
        ),
        "- **created**: `migrate --target` writes models in this format.",
        "- **verified**: `migrate` can compare the predictions before and after a change.",
        "",
        "## KerasHub presets",
        "",
        (
            "A preset is one model: the backbone in `config.json`, with the layers that its "
            "weights files name. Their policies follow from the policy or the policy map of the "
            "backbone. Layers without variables are not listed. `task.json` and its weights add "
            "the layers of the task, whose policies are not stored. The column `effective` of "
            "`inspect` shows the policy of each layer after `from_preset` without `dtype`. A "
            "layer inside a layer that has a config, such as the encoders of CLIP, has "
            "both policies there, because the code of its class decides."
        ),
        "",
        (
            "`from_preset` of KerasHub 0.22 and later replaces the stored policy by the global "
            "policy. A policy map of quantized layers is kept only by tasks with a `task.json`, "
            "and if it is passed as `dtype`; a backbone without a task fails to load. "
            "`migrate --to` changes the policy in `config.json` and `task.json`, and no weights."
        ),
        "",
        (
            "`check`, `tune`, `migrate --verify` and `policytool.load` run only the backbone, with "
            "the policies in `config.json`, as `from_preset` builds it with this `dtype`. They "
            "need KerasHub: `pip install 'policytool[hub]'`. Tasks do not run, because no file has "
            f"the policies of the layers that they add, and KerasHub loads only {loaded} of the "
            f"{len(saved)} tasks saved below."
        ),
        "",
        (
            "No table of families is needed. The results were compared with the layers that "
            f"KerasHub 0.32.0 loads for {len(families)} families of backbones, which Keras 3.15.1 "
            f"saved in float32, bfloat16, mixed_bfloat16, int8 and int4: {', '.join(families)}. "
            f"For {len(tasks)} of them, a task was saved, too: {', '.join(tasks)}."
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
    parts = {
        "policies": has_policies,
        "variables": has_variables,
        "values": bool(file_format.values_opener),
    }
    marks = (
        has_policies and name not in NOT_LOADED,
        file_format.is_rewritten,
        name in CONVERTED,
        bool(file_format.creator_maker),
        is_written and runs,
    )
    read = ", ".join(part for part, is_read in parts.items() if is_read)
    return (_description(file_format), read, *map(_mark, marks))


def _description(file_format: Format) -> str:
    """Return the first words about a format in the documentation of its module."""
    text = " ".join((inspect.getdoc(import_module(file_format.package)) or "").split())
    return re.split(r"[:,]|\.(?: |$)", text)[0].replace("``", "`")


def _mark(holds: object) -> str:
    return "yes" if holds else "no"
