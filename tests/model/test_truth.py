"""
Every fixture file says of every layer what the live objects of its release said before they were
saved.

What a file truly does not hold is listed in ``ABSENT`` and ``UNSAID``, each with its reason;
nothing else may differ. The fixtures' generator is ``fixtures/generate.py``; the truth beside them
was asked of the real releases.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import policytool
from policytool.formats import format_detection
from policytool.model import reading
from policytool.model.model import Layer, Source
from policytool.releases.policy import Dynamic, Fixed
from tests.helpers.cases import for_each
from tests.helpers.marks import INSPECTING, THOROUGH
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

pytestmark = INSPECTING

WITH_CONFIG: Final = ("h5", "json", "yaml", "keras", "keras-dir", "savedmodel", "tfjs", "export")
"""Formats that hold a config; of exports, those of TF 1."""

WITHOUT_VARIABLES: Final = ("json", "yaml")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One file of a fixture case, with the recorded properties of the live objects."""

    folder: str
    release: str
    """The release of Keras that built the model."""

    name: str
    format: str
    file: str
    truth: dict[str, Any]

    @property
    def keras3(self) -> bool:
        return self.release.startswith("keras3")

    @property
    def before_policies(self) -> bool:
        """Whether files of the release contain only the variable dtype."""
        return self.release.startswith(("keras2", "tf1")) or self.release == "tf2.0"

    @property
    def path(self) -> str:
        return str(FIXTURES / self.folder / self.file)


def _cases(formats: tuple[str, ...]) -> Iterator[Case]:
    for file in sorted(FIXTURES.glob("*/truth.json")):
        for name, truth in json.loads(file.read_text(encoding="utf-8"))["cases"].items():
            for kind, saved in truth["files"].items():
                if kind in formats and not (
                    kind == "export" and file.parent.name.startswith("keras3")
                ):
                    yield Case(
                        folder=file.parent.name,
                        release=truth.get("release", file.parent.name),
                        name=name,
                        format=kind,
                        file=saved,
                        truth=truth,
                    )


CASES: Final = tuple(_cases(WITH_CONFIG))
Record = dict[str, Any]


UNNAMED: Final = frozenset({"keras2.1.6"})
"""Releases up to Keras 2.2.2, which write a Sequential as the bare list of its layers."""

ABSENT: Final[tuple[tuple[str, Callable[[Case, Record], bool]], ...]] = (
    (
        (
            "the sub-layers of a custom layer or model stand in no config; only a SavedModel has "
            "nodes "
            "for them"
        ),
        lambda case, record: (
            case.format != "savedmodel"
            and (record["role"] == "sublayer" or case.name == "subclassed")
            and not record["class_name"].startswith("EinsumDense")
        ),
    ),
    (
        (
            "cells of TF up to 2.12 and of standalone Keras are numbered per process, and the "
            "number "
            "stands in HDF5 weight names of TF 2.2 on alone"
        ),
        lambda case, record: record["role"] == "cell" and record["name"][-1].isdigit(),
    ),
    (
        "configs have no input layer of a Sequential that is a bare list",
        lambda case, record: (
            case.release in UNNAMED
            and record["role"] == "input"
            and record["path"].rpartition("/")[0] in _sequentials(case)
        ),
    ),
    (
        "a SavedModel of TF 2.0 and older has a node for an input layer only in a functional model",
        lambda case, record: (
            case.format == "savedmodel" and record["role"] == "input" and case.before_policies
        ),
    ),
)
"""Reason, and which layers it excuses from standing in the report."""


def _sequentials(case: Case) -> set[str]:
    return {
        record["path"] for record in case.truth["layers"] if record["class_name"] == "Sequential"
    }


def _reported(case: Case, path: str) -> str:
    """
    Return the path of a layer in reports: a Sequential has the name of its class if no model lists
    it by name.
    """
    if case.release not in UNNAMED:
        return path
    parts = path.split("/")
    models = {layer["path"] for layer in case.truth["layers"] if layer["class_name"] in MODELS}
    actual = {item for item in _sequentials(case) if item.rpartition("/")[0] not in models}
    return "/".join(
        "sequential" if "/".join(parts[: end + 1]) in actual else part
        for end, part in enumerate(parts)
    )


MODELS: Final = frozenset({"Model", "Functional", "Sequential", "Network"})

UNSAID: Final[tuple[tuple[str, Callable[[Case, Record, Layer], bool]], ...]] = (
    (
        (
            "a model's own policy is not in the configs of Functional, of Sequential "
            "before Keras 3, and of subclassed models: the global policy decides"
        ),
        lambda case, record, layer: (
            layer.source is Source.GLOBAL
            and (record["role"] == "model" or record["class_name"] in MODELS)
        ),
    ),
    (
        "a null dtype (infer, _infer, or v1 behaviour) leaves the policy to the loader",
        lambda case, record, layer: (
            layer.source is Source.GLOBAL
            and record["policy"] in {None, "infer", "_infer", "infer_with_float32_vars", "float32"}
        ),
    ),
    (
        "a policy map without a default leaves the layers that it does not name to the loader",
        lambda case, record, layer: (
            layer.source is Source.GLOBAL and case.name == "policy_map_no_default"
        ),
    ),
    (
        "the projections of MultiHeadAttention up to TF 2.13 take the global policy",
        lambda case, record, layer: (
            layer.source is Source.GLOBAL
            and record["role"] == "sublayer"
            and record["class_name"] == "EinsumDense"
        ),
    ),
    (
        "TF 2.0 and older write the variable dtype alone",
        lambda case, record, layer: (
            case.before_policies
            and layer.source in {Source.DECLARED, Source.DEFAULT}
            and layer.policy
            == layer.compute_dtype
            == layer.variable_dtype
            == record["variable_dtype"]
        ),
    ),
)
"""Reason, and which layers it excuses from saying the live policy."""


@cache
def report(path: str) -> policytool.Model:
    """Return the report of a fixture."""
    return policytool.inspect(path)


def by_path(model: policytool.Model) -> dict[str, Layer]:
    """Return the layers by each of their paths."""
    return {path: layer for layer in model.layers for path in (layer.path, *layer.also_at)}


def live_records(
    case: Case, model: policytool.Model, live: Iterable[Mapping[str, Any]]
) -> dict[str, Record]:
    """
    Return the recorded properties of the loaded layers by their paths in a report; a release that
    loads a Sequential without a name invents one.
    """
    records = {
        path: dict(record) for record in live for path in (record["path"], *record["also_at"])
    }
    if case.release in UNNAMED:
        names = {path.rpartition("/")[2]: record for path, record in records.items()}
        for path in by_path(model):
            record = names.get(path.rpartition("/")[2])
            if record is not None:
                records.setdefault(path, record)
    return records


def scale(found: Dynamic | Fixed | None) -> Record | None:
    """Return a loss scale in the format of the recorded truth."""
    if isinstance(found, Fixed):
        return {"kind": "fixed", "value": found.value}
    if found is None:
        return None
    return {
        "kind": "dynamic",
        "initial": found.initial,
        "growth_steps": found.growth_steps,
        "multiplier": found.multiplier,
    }


def ids(case: Case) -> str:
    """Return a readable id."""
    return f"{case.folder}-{case.name}-{case.format}"


@for_each("case", CASES, ids=ids)
def test_layers_in_reports_equal_the_recorded_truth(case: Case) -> None:
    """
    Class, policy, compute and variable dtype, loss scale and autocast of each layer in a report
    equal the recorded truth.
    """
    model = report(case.path)
    layers = by_path(model)
    differences = []
    for record in case.truth["layers"]:
        layer = layers.get(_reported(case, record["path"]))
        if layer is None:
            if not any(excuses(case, record) for _, excuses in ABSENT):
                differences.append(f"{record['path']} ({record['class_name']}) is missing")
            continue
        differences += [
            f"{record['path']}: {text}" for text in _differences(case, record, layer, model)
        ]
    assert not differences, "\n".join(differences)


def _differences(
    case: Case, record: Record, layer: Layer, model: policytool.Model
) -> Iterator[str]:
    if layer.class_name != record["class_name"]:
        yield f"class {layer.class_name}, was {record['class_name']}"
    if layer.autocast is not None and layer.autocast != record["autocast"]:
        yield f"autocast {layer.autocast}, was {record['autocast']}"
    if record["role"] == "input":
        if layer.policy != record["tensor_dtype"]:
            yield f"input of {layer.policy}, was {record['tensor_dtype']}"
        return
    if any(excuses(case, record, layer) for _, excuses in UNSAID):
        return
    for name in ("policy", "compute_dtype", "variable_dtype"):
        if record[name] is not None and getattr(layer, name) != record[name]:
            yield f"{name} {getattr(layer, name)}, was {record[name]}"
    if scale(layer.loss_scale) != record["loss_scale"] and not _unknown_scale(record, layer, model):
        yield f"loss scale {layer.loss_scale}, was {record['loss_scale']}"
    quantized = (
        {"mode": layer.quantization.mode, "source": layer.quantization.source}
        if layer.quantization
        else None
    )
    if quantized != record["quantization"]:
        yield f"quantisation {quantized}, was {record['quantization']}"


def _unknown_scale(record: Record, layer: Layer, model: policytool.Model) -> bool:
    """
    Return whether the file fits both TF 2.3, whose default policy scales losses, and TF 2.4, whose
    does not, so that the report must mark the scale as unknown.
    """
    result = any(observation.code == "loss-scale-unknown" for observation in model.observations)
    return result and layer.loss_scale is None and record["loss_scale"] == scale(Dynamic())


@for_each("case", CASES, ids=ids)
def test_no_layer_is_invented(case: Case) -> None:
    """
    Each layer in a report was in the live model, except unlisted input layers of a Sequential and
    numbered cells.
    """
    known = {
        _reported(case, path)
        for record in case.truth["layers"]
        for path in (record["path"], *record["also_at"])
    }
    invented = [
        layer.path
        for layer in report(case.path).layers
        if layer.path not in known
        and layer.class_name != "InputLayer"
        and not (layer.source is Source.DEFAULT and str(layer.class_name).endswith("Cell"))
    ]
    assert not invented


NOT_SAVED_WHOLE: Final = frozenset({"gptq_policy", "awq_policy"})
"""
Cases whose layers do not save all their variables: Keras drops the calibration state of GPTQ and
AWQ.
"""

BELOW_A_CUSTOM_LAYER: Final = frozenset({"Pair", "Net"})
"""
Fixture classes whose sub-layers stand in no config, so that their variables are reported with the
class itself.
"""


@for_each("case", [case for case in CASES if case.format not in WITHOUT_VARIABLES], ids=ids)
def test_variables_equal_those_of_the_live_layers(case: Case) -> None:
    layers = by_path(report(case.path))
    differences = []
    for record in case.truth["layers"]:
        layer = layers.get(record["path"])
        if layer is None or record["class_name"] in BELOW_A_CUSTOM_LAYER:
            continue
        live = Counter(
            (tuple(weight["shape"]), "float32" if case.format == "tfjs" else weight["dtype"])
            for weight in record["weights"]
        )
        stored = Counter((variable.shape, variable.dtype) for variable in layer.variables)
        if live != stored and not _stored_otherwise(case, record):
            differences.append(f"{record['path']}: stored {dict(stored)}, live {dict(live)}")
    assert not differences, "\n".join(differences)


def _stored_otherwise(case: Case, record: Record) -> bool:
    """
    Return whether the release stores the variables of this layer under another layer's name, or not
    at all.
    """
    if case.name.startswith("quantized_") and case.format == "tfjs":
        return True  # as the case says
    stacked_cells_have_no_scope = case.release.startswith("keras2") and case.name.startswith("rnn")
    return stacked_cells_have_no_scope or case.name in NOT_SAVED_WHOLE or not record


@for_each(
    "case",
    [
        case
        for case in CASES
        if case.format not in WITHOUT_VARIABLES and case.name not in NOT_SAVED_WHOLE
    ],
    ids=ids,
)
def test_every_number_is_counted_once(case: Case) -> None:
    """In the live model, variables of a shared layer count once."""
    twice_in_legacy_h5 = (
        case.name == "shared_layer" and case.format == "h5" and not case.keras3
    )  # once per place, when shared with a nested model
    live = sum(
        math.prod(weight["shape"]) * (1 + len(record["also_at"]) if twice_in_legacy_h5 else 1)
        for record in case.truth["layers"]
        for weight in record["weights"]
    )
    assert report(case.path).summary.parameters == live


WRAPPED_BY_COMPILE: Final = frozenset({"adam_autowrap_mf16", "loss_scale_factor128_mf16"})
"""
Cases whose optimizer compile() wrapped by itself. 3.15's .keras has lost the loss_scale_factor by
then, 3.0's JSON has not.
"""


@THOROUGH
@for_each("case", CASES, ids=ids)
def test_optimizer_equals_the_saved_optimizer(case: Case) -> None:
    truth, actual = case.truth["optimizer"], report(case.path).optimizer
    if case.format in WITHOUT_VARIABLES and not case.keras3:
        assert actual is None  # Keras 2's to_json() and to_yaml() hold no training configuration
    elif truth is None:
        assert actual is None
    else:
        assert actual is not None
        assert actual.class_name == truth["class_name"]
        expected = [truth["loss_scale"]]
        if (
            case.format not in {"h5", "savedmodel"} and case.name in WRAPPED_BY_COMPILE
        ):  # .keras and to_json() store the optimizer that the user passed
            expected = [
                None,
                *(
                    [{"kind": "fixed", "value": 128.0}]
                    if case.name.startswith("loss_scale_factor")
                    else []
                ),
            ]
        assert scale(actual.loss_scale) in expected


@THOROUGH
@for_each("case", CASES, ids=ids)
def test_the_generation_holds_the_release(case: Case) -> None:
    """
    The releases that a report names as possible writers contain the release that wrote the file.
    """
    model = report(case.path)
    if model.written_by is None:
        assert case.format in {"json", "yaml", "savedmodel"}
        return
    assert case.release.rstrip("0123456789").rstrip(".") in model.written_by or _covers(
        model.written_by, case.release
    )


def _covers(generation: str, release: str) -> bool:
    from policytool.releases.releases import RELEASES

    names = [known.id for known in RELEASES]
    expected = names.index(".".join(release.split(".")[:2]))
    first, separator, last = generation.rstrip("+").partition("-")
    start = names.index(first)
    family = first.rstrip("0123456789.")
    end = (
        len(names) - 1
        if generation.endswith("+")
        else names.index(f"{family}{last}")
        if separator
        else start
    )
    return start <= expected <= end


WEIGHTS_ALONE: Final = tuple(_cases(("weights", "weights-legacy", "weights-tf", "keras-sharded")))


@for_each("case", WEIGHTS_ALONE, ids=ids)
def test_weights_file_has_the_variables_of_the_live_model(case: Case) -> None:
    """
    A report on a weights file of any layout has each variable of the live model once, with its
    shape and dtype, and notes that the file has no policy.
    """
    model = report(case.path)
    live = Counter(
        (tuple(weight["shape"]), weight["dtype"])
        for record in case.truth["layers"]
        for weight in record["weights"]
    )
    assert (
        Counter(
            (variable.shape, variable.dtype)
            for layer in model.layers
            for variable in layer.variables
        )
        == live
    )
    assert {layer.policy for layer in model.layers} == {None}
    assert model.format == "weights"
    assert "no-policy" in [observation.code for observation in model.observations]


def test_layers_that_compute_include_only_cells_in_the_config() -> None:
    """``check`` counts the layers that a conversion changes: RNN stores its cell, LSTM does not."""
    path = FIXTURES / "keras3.6" / "rnn_mixed.json"
    loaded = reading.load_model(format_detection.document(path, path.name))
    paths = {layer.path for layer in loaded.computing_layers}
    assert {"net/lstm", "net/rnn", "net/rnn/lstm_cell"} <= paths
    assert not {"net/sequence", "net/lstm/lstm_cell"} & paths
