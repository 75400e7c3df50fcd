"""The rules of mask propagation are those that the releases showed."""

from __future__ import annotations

from typing import Any, Final

import pytest

from policytool.releases import data
from policytool.releases.behaviour import fully_masked_result, mask_rule
from policytool.releases.layer_classes import builtin_classes
from policytool.releases.releases import KERAS3, RELEASES, releases_in

TF_KERAS: Final = "tf_keras2.21"
KERAS: Final = "keras3.15"

NOT_MEASURED: Final = {
    "only in releases older than TF 2.4": (
        "AtrousConvolution1D",
        "AtrousConvolution2D",
        "Container",
        "ConvLSTMCell",
        "ConvRNN2D",
        "ConvRecurrent2D",
        "Convolution1D",
        "Convolution2D",
        "Convolution3D",
        "CuDNNGRU",
        "CuDNNLSTM",
        "Deconvolution2D",
        "Highway",
        "MaxoutDense",
        "Merge",
        "ParametricSoftplus",
        "Recurrent",
        "SReLU",
        "SeparableConvolution2D",
        "TimeDistributedDense",
    ),
    "part of a recurrent layer, which has a row": (
        "ConvLSTM2DCell",
        "GRUCell",
        "LSTMCell",
        "SimpleRNNCell",
        "StackedRNNCells",
    ),
    "a base class": ("AbstractRNNCell", "Layer", "PreprocessingLayer", "Wrapper"),
    "it has no input": ("InputLayer",),
    "other code or other layers decide": (
        "FlaxLayer",
        "JaxLayer",
        "Pipeline",
        "TFSMLayer",
        "TorchModuleWrapper",
    ),
    "its inputs are words, columns or a dict, which have no mask": (
        "CategoryCrossing",
        "DenseFeatures",
        "DynamicEmbedding",
        "DynamicLookup",
        "HashedCrossing",
        "MaxNumBoundingBoxes",
    ),
    "Keras makes no functional model of it": ("Equalization",),
    "it needs SciPy": ("STFTSpectrogram",),
}
"""Classes without a row, by reason."""


def facts() -> dict[str, Any]:
    """Return the data."""
    return data.read("layer_masks")


def test_every_release_of_keras_3_is_measured() -> None:
    """The releases of Keras 2 that models are usually converted from and to are also measured."""
    measured = set(facts()["releases"])
    assert measured >= {release.id for release in RELEASES if release.family == KERAS3}
    assert measured >= {"tf2.4", "tf2.5", "tf2.9", "tf2.12", "tf2.15", TF_KERAS}


@pytest.mark.parametrize("section", ["classes", "fully_masked"])
def test_ranges_name_releases(section: str) -> None:
    """Each range contains a measured release, and no two rows of a call share a release."""
    for name, rows in facts()[section].items():
        seen = set()
        for row in rows:
            covered = releases_in(row["releases"])
            assert covered & set(facts()["releases"]), name
            inputs = len(next(iter(row.get("masks", " "))))
            for release in covered:
                key = (release, str(row.get("arguments")), str(row.get("call")), inputs)
                assert key not in seen, (name, key)
                seen.add(key)


@pytest.mark.parametrize("name", ["Add", "Subtract", "Average", "Multiply", "Maximum", "Minimum"])
def test_merges_combine_masks_in_two_ways(name: str) -> None:
    """Keras 2 ANDs the masks that are there; Keras 3.15 ORs them, and only if all are there."""
    two, three = (mask_rule(name, {}, release, inputs=2) for release in (TF_KERAS, KERAS))
    assert two is not None
    assert three is not None
    assert two.out == {"00": ("none",), "01": ("second",), "10": ("first",), "11": ("and",)}
    assert three.out == {"00": ("none",), "01": ("none",), "10": ("none",), "11": ("or",)}
    assert bool(three.reads) == (name in {"Multiply", "Maximum", "Minimum"})


@pytest.mark.parametrize(
    ("release", "attached", "given"),
    [
        (TF_KERAS, set(), set()),
        ("keras3.7", set(), set()),
        ("keras3.8", {0, 1}, set()),
        ("keras3.9", {0, 1}, set()),
        ("keras3.10", {0, 1}, {0, 1}),
        (KERAS, {0, 1}, {0, 1}),
    ],
)
def test_multi_head_attention_clears_masks(
    release: str, attached: set[int], given: set[int]
) -> None:
    """
    The layer clears attached masks from Keras 3.8 on. Keras 3.9 is the last that writes masks for
    every layer.
    """
    rule = mask_rule("MultiHeadAttention", {"num_heads": 2}, release, inputs=2)
    assert rule is not None
    assert rule.attached_clears == attached
    assert rule.clears == given
    assert rule.out["11"] == ("first",)


def test_concatenate_treats_an_input_without_a_mask_as_ones() -> None:
    """Along the steps, tf_keras 2.21 raises an error for such an input."""
    features = mask_rule("Concatenate", {"axis": -1}, KERAS, inputs=2)
    steps = mask_rule("Concatenate", {"axis": 1}, KERAS, inputs=2)
    older = mask_rule("Concatenate", {"axis": 1}, TF_KERAS, inputs=2)
    assert features is not None
    assert features.out["10"] == ("ones",)
    assert steps is not None
    assert steps.out["10"] == ("concat",)
    assert older is not None
    assert "10" not in older.out
    assert older.errors["10"].startswith("ValueError")


@pytest.mark.parametrize("name", ["Rescaling", "Normalization", "Identity"])
def test_only_keras3_propagates_masks_of_some_layers(name: str) -> None:
    """Keras 3.15 propagates the mask, and tf_keras drops it."""
    assert mask_rule(name, {}, TF_KERAS).out["1"] == ("none",)  # type: ignore[union-attr]
    assert mask_rule(name, {}, KERAS).out["1"] == ("first",)  # type: ignore[union-attr]


def test_config_decides() -> None:
    """An LSTM that returns one step has no mask, nor has a wrapper of it."""
    for release in (TF_KERAS, KERAS):
        for sequences, word in ((False, "none"), (True, "first")):
            inner = {"units": 4, "return_sequences": sequences}
            plain = mask_rule("LSTM", inner, release)
            wrapper = {"layer": {"class_name": "LSTM", "config": inner}, "merge_mode": "concat"}
            both = mask_rule("Bidirectional", wrapper, release)
            assert plain is not None
            assert both is not None
            assert plain.out["1"] == both.out["1"] == (word,)


def test_merges_of_the_first_releases_of_keras_3_drop_masks() -> None:
    """These releases never call ``compute_mask``, because a list has no mask."""
    for release, word in (("keras3.0", "none"), ("keras3.3", "none"), ("keras3.4", "or")):
        rule = mask_rule("Add", {}, release, inputs=2)
        assert rule is not None
        assert rule.out["11"] == (word,)


def test_states_of_a_recurrent_layer_hide_its_mask() -> None:
    """
    If the layer is called on several tensors, Keras 3 does not apply the mask, but propagates it.
    """
    for release, reads in ((TF_KERAS, {"10", "11"}), (KERAS, set())):
        for sequences, word in ((False, "none"), (True, "first")):
            config = {"units": 4, "return_sequences": sequences}
            rule = mask_rule("GRU", config, release, inputs=2, call=["initial_state"])
            assert rule is not None
            assert rule.reads == reads
            assert rule.out["10"] == (word,)


def test_fully_masked_rows_of_attention_depend_on_the_kernel() -> None:
    """From Keras 3.10 on, scores and dropout decide which kernel runs."""
    name = "MultiHeadAttention"
    scores = ["return_attention_scores"]
    for release, words in (
        (TF_KERAS, ("uniform", "uniform", "uniform")),
        ("keras3.9", ("uniform", "uniform", "uniform")),
        ("keras3.10", ("uniform", "zeros", "zeros")),
        (KERAS, ("uniform", "zeros", "zeros")),
    ):
        actual = (
            fully_masked_result(name, {"dropout": 0.0}, release),
            fully_masked_result(name, {"dropout": 0.0}, release, call=scores),
            fully_masked_result(name, {"dropout": 0.1}, release),
        )
        assert tuple(item.value for item in actual if item) == words
        assert tuple(item.query for item in actual if item) == words
    assert fully_masked_result("Dense", {}, KERAS) is None


def test_unmeasured_layers_have_no_mask_rule() -> None:
    """The cases are a custom class, an old release, and another number of inputs."""
    assert mask_rule("Custom", {}, KERAS) is None
    assert mask_rule("Add", {}, "tf1.13", inputs=2) is None
    assert mask_rule("Add", {}, KERAS, inputs=5) is None


def test_every_class_is_measured_or_left_out_for_a_reason() -> None:
    """A class that a release adds needs a case in ``fixtures/writer/layer_cases.py``."""
    left_out = {name for names in NOT_MEASURED.values() for name in names}
    assert builtin_classes() - set(facts()["classes"]) == left_out
