"""
Verdicts on configs that lack a key, with the results of TF 2.4, 2.9 and 2.15, tf_keras 2.21, and
Keras 3.0, 3.6 and 3.15, each of which loaded models without one key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from policytool.formats.format_detection import document
from policytool.migration.convert import conversion_plan
from policytool.migration.planning.options import Options
from policytool.model import reading
from policytool.model.writer_version import NEEDED_KEYS
from tests.helpers.cases import for_each
from tests.helpers.paths import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from policytool.model.loaded_model import LoadedModel

Place = tuple[str | int, ...]

MODEL: Final = ("config",)
LAYER: Final = (*MODEL, "layers", 1)
CALL: Final = (*LAYER, "inbound_nodes", 0)
TENSOR: Final = (*CALL, "args", 0)
POLICY: Final = (*LAYER, "config", "dtype")
KERAS2_MODEL: Final = "tf2.15/global_mixed_float16.json"
KERAS3_MODEL: Final = "keras3.15/global_mixed_float16.json"


def without(name: str, place: Place, key: str, path: Path) -> LoadedModel:
    """Return a fixture in which the object at a place lacks a key."""
    model = json.loads((FIXTURES / name).read_text(encoding="utf-8"))
    value = model
    for step in place:
        value = value[step]
    del value[key]
    return load(model, path)


def load(model: dict[str, Any], path: Path) -> LoadedModel:
    """Return a config after it was written to a file."""
    path.write_text(json.dumps(model), encoding="utf-8")
    return reading.load_model(document(path, str(path)))


def loading(loaded: LoadedModel) -> set[str]:
    """Return the releases that load a model."""
    return {verdict.loader for verdict in loaded.loaders if verdict.loads}


@for_each(
    ("name", "place", "what"),
    [
        (KERAS2_MODEL, MODEL, "graph"),
        (KERAS2_MODEL, LAYER, "layer"),
        (KERAS2_MODEL, LAYER, "connected layer"),
        (KERAS2_MODEL, POLICY, "policy"),
        (KERAS2_MODEL, (*POLICY, "config"), "policy config"),
        ("tf2.4/sequential.json", MODEL, "chain"),
        ("tf2.4/sequential.json", LAYER, "layer"),
        (KERAS3_MODEL, MODEL, "graph"),
        (KERAS3_MODEL, LAYER, "connected layer"),
        (KERAS3_MODEL, CALL, "call"),
        (KERAS3_MODEL, TENSOR, "argument"),
        (KERAS3_MODEL, (*TENSOR, "config"), "tensor"),
    ],
)
def test_no_release_loads_a_model_without_a_needed_key(
    name: str, place: Place, what: str, tmp_path: Path
) -> None:
    """Up to TF 2.5 a functional model needs no name. A conversion would have to invent it."""
    for key in NEEDED_KEYS[what]:
        loaded = without(name, place, key, tmp_path / "m.json")
        is_optional = (name, what, key) == (KERAS2_MODEL, "graph", "name")
        assert loading(loaded) == ({"tf2.3", "tf2.4", "tf2.5"} if is_optional else set())
        if not loading(loaded):
            plan = conversion_plan.plan(loaded, Options(target="keras3.15"), None)
            assert [refusal.code for refusal in plan.refusals] == ["unloadable"]
            assert f"has no `{key}`" in plan.refusals[0].message


def test_inputs_by_name_are_no_incomplete_call(tmp_path: Path) -> None:
    """Keras 2 writes the inputs of a DenseFeatures as a dict."""
    model = json.loads((FIXTURES / KERAS2_MODEL).read_text(encoding="utf-8"))
    (layer,) = model["config"]["layers"][1:2]
    layer["inbound_nodes"] = [{"x": layer["inbound_nodes"][0][0]}]
    assert {"tf2.15", "tf_keras2.21"} <= loading(load(model, tmp_path / "m.json"))


@for_each(
    ("name", "place", "key"),
    [
        (KERAS2_MODEL, MODEL, "trainable"),
        (KERAS2_MODEL, LAYER, "module"),
        (KERAS2_MODEL, LAYER, "registered_name"),
        (KERAS3_MODEL, MODEL, "trainable"),
        (KERAS3_MODEL, LAYER, "build_config"),
        (KERAS3_MODEL, POLICY, "config"),
        ("tf2.4/sequential.json", (*LAYER, "config"), "name"),
    ],
)
def test_other_keys_are_not_needed(name: str, place: Place, key: str, tmp_path: Path) -> None:
    newest = {"keras3.15"} if name == KERAS3_MODEL else {"tf2.15", "tf_keras2.21"}
    assert newest <= loading(without(name, place, key, tmp_path / "m.json"))
