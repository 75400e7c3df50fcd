"""
Releases in which a layer gets another mask. The expected results are those of loaded models: TF 2.9
and Keras 3.0 wrote them, and Keras 3.15 predicted something else for rows with padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import policytool
from tests.helpers.convertible_models import Config, input2, keras2, layer2
from tests.helpers.small_models import dense, h5_model, instance, sequential

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from policytool.model.model import Verdict


def _embedding(name: str, source: str, *, mask_zero: bool = True, **config: object) -> Config:
    sizes = {"input_dim": 7, "output_dim": 3, "mask_zero": mask_zero}
    return layer2("Embedding", name, [[source, 0, 0, {}]], **sizes, **config)


def _join(class_name: str, **config: object) -> Config:
    return layer2(class_name, "join", [["ids", 0, 0, {}], ["more", 0, 0, {}]], **config)


def _call(class_name: str, name: str, source: str, /, **config: object) -> Config:
    return layer2(class_name, name, [[source, 0, 0, {}]], **config)


def _verdicts(path: Path, *layers: Config) -> Mapping[str, Verdict]:
    inputs = (input2("a", 4), input2("b", 4))
    model = keras2(*inputs, *layers, outputs=(layers[-1]["name"],))
    written = h5_model(path, model, weights=False, keras_version="2.9.0")
    return policytool.inspect(str(written)).releases


def _reasons(path: Path, *layers: Config, loader: str = "keras3.15") -> list[str]:
    return [
        cause.reason
        for cause in _verdicts(path, *layers)[loader].changed_results
        if "mask" in cause.reason
    ]


IDS = _embedding("ids", "a")
MORE = _embedding("more", "b")
MEAN = _call("GlobalAveragePooling1D", "mean", "join")


@pytest.mark.parametrize("class_name", ["Add", "Average", "Concatenate"])
def test_layer_that_joins_masks_otherwise_is_named(tmp_path: Path, class_name: str) -> None:
    """Keras 2 masks a step if it is masked in any input, and Keras 3 if it is in all."""
    config = {"axis": -1} if class_name == "Concatenate" else {}
    found = _verdicts(tmp_path / "m.h5", IDS, MORE, _join(class_name, **config), MEAN)
    cause = next(cause for cause in found["keras3.15"].changed_results)
    assert cause.reason == (
        f"{class_name} join passes on another mask than in TF 2.9, which model/mean uses"
    )
    assert cause.layers == ("model/mean",)
    for loader in ("tf2.4", "tf2.15", "tf_keras2.21"):
        assert not found[loader].changed_results, loader


def test_layer_that_reads_masks_otherwise_is_named(tmp_path: Path) -> None:
    """Keras 3.4 and later multiply only the inputs that are not masked at a step."""
    assert _reasons(tmp_path / "m.h5", IDS, MORE, _join("Multiply"), MEAN) == [
        "Multiply join uses the masks of its inputs in another way than in TF 2.9"
    ]


UNCHANGED: dict[str, tuple[Config, ...]] = {
    "one mask": (IDS, _call("Dense", "join", "ids", units=2), MEAN),
    "no reader": (IDS, MORE, _join("Add"), _call("Flatten", "flat", "join")),
    "no mask": (
        _embedding("ids", "a", mask_zero=False),
        _embedding("more", "b", mask_zero=False),
        _join("Add"),
        MEAN,
    ),
}


@pytest.mark.parametrize("case", UNCHANGED)
def test_same_masks_are_not_reported(tmp_path: Path, case: str) -> None:
    assert _reasons(tmp_path / "m.h5", *UNCHANGED[case]) == []


def _unmeasured() -> dict[str, tuple[Config, ...]]:
    inner = sequential(dense("inner"), name="nested")
    nested = {**inner, "name": "nested", "inbound_nodes": [[["join", 0, 0, {}]]]}
    joined = (IDS, MORE, _join("Add"))
    masked = layer2("GlobalAveragePooling1D", "mean", [["join", 0, 0, {"mask": ["ids", 0, 0]}]])
    half = _embedding("ids", "a", dtype="float16")
    return {
        "nested model": (*joined, nested, _call("GlobalAveragePooling1D", "mean", "nested")),
        "custom layer": (
            *joined,
            _call("Own>Layer", "own", "join"),
            _call("GlobalAveragePooling1D", "mean", "own"),
        ),
        "mask in the graph": (*joined, masked),
        "casts": (half, MORE, _join("Add"), MEAN),
    }


@pytest.mark.parametrize("case", _unmeasured())
def test_masks_that_meet_anything_unmeasured_are_not_reported(tmp_path: Path, case: str) -> None:
    assert _reasons(tmp_path / "m.h5", *_unmeasured()[case]) == []


def test_mask_of_a_chain_is_followed(tmp_path: Path) -> None:
    """A Masking in a Sequential has the same effect in all releases."""
    layers = (
        instance("Masking", name="m", mask_value=0.0, batch_input_shape=[None, 4, 2]),
        instance("GlobalAveragePooling1D", name="mean"),
    )
    path = h5_model(tmp_path / "m.h5", sequential(*layers), weights=False)
    found: Any = policytool.inspect(str(path)).releases
    assert not found["keras3.15"].changed_results


@pytest.mark.parametrize(
    ("between", "reader", "fails"),
    [
        ("Dropout", "GRU", True),
        ("Dropout", "GlobalAveragePooling1D", True),
        ("Dropout", "MultiHeadAttention", True),
        ("Dropout", "Attention", False),
        ("Dropout", "Flatten", False),
        ("UpSampling1D", "GRU", False),
    ],
)
def test_joined_masks_clash_only_if_they_reach_a_layer_that_takes_a_mask(
    tmp_path: Path, between: str, reader: str, *, fails: bool
) -> None:
    """Keras 3.6 loads a Concatenate whose mask a layer after it drops."""
    layers = (
        IDS,
        MORE,
        layer2("Concatenate", "concatenate", [["ids", 0, 0, {}], ["more", 0, 0, {}]], axis=-1),
        _call(between, "between", "concatenate"),
        _call(reader, "reader", "between"),
    )
    reason = "Keras 3.6 joins the masks of a Concatenate in an operation with the name of a layer"
    causes = [cause.reason for cause in _verdicts(tmp_path / "m.h5", *layers)["keras3.6"].causes]
    assert (reason in causes) is fails
