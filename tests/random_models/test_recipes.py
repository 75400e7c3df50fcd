"""Descriptions of random models: pure, complete, and the same in every process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from functools import cache
from typing import Final

import pytest

from tests.helpers.marks import THOROUGH
from tests.helpers.paths import ROOT
from tests.random_models.description import Graph, Recipe, from_json, short_form, to_json
from tests.random_models.pruning import prune, references
from tests.random_models.recipes import LIBRARIES, WELL_KNOWN, recipe_from_seed
from tests.random_models.shrink import bypasses, cuts, simplifications, size

SEEDS: Final = range(1500)
COMMON: Final = frozenset(
    {
        *("Dense", "EinsumDense", "Activation", "ReLU", "LeakyReLU", "ELU", "PReLU", "Softmax"),
        *("BatchNormalization", "LayerNormalization", "GroupNormalization", "UnitNormalization"),
        *("Dropout", "SpatialDropout1D", "GaussianNoise", "GaussianDropout", "AlphaDropout"),
        *("ActivityRegularization", "Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose"),
        *("Conv2DTranspose", "Conv3DTranspose", "DepthwiseConv1D", "DepthwiseConv2D"),
        *("SeparableConv1D", "SeparableConv2D", "MaxPooling1D", "AveragePooling2D"),
        *("MaxPooling3D", "GlobalMaxPooling1D", "GlobalAveragePooling2D", "Cropping1D"),
        *("Cropping2D", "Cropping3D", "ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D"),
        *("UpSampling1D", "UpSampling2D", "UpSampling3D", "Flatten", "Reshape", "Permute"),
        *("RepeatVector", "Identity", "Embedding", "Masking", "LSTM", "GRU", "SimpleRNN", "RNN"),
        *("Bidirectional", "TimeDistributed", "ConvLSTM1D", "ConvLSTM2D", "MultiHeadAttention"),
        *("Attention", "AdditiveAttention", "Add", "Subtract", "Multiply", "Average", "Maximum"),
        *("Minimum", "Concatenate", "Dot", "Rescaling", "Normalization", "Discretization"),
        *(
            "CategoryEncoding",
            "Hashing",
            "StringLookup",
            "IntegerLookup",
            "TextVectorization",
            "Resizing",
        ),
        *("CenterCrop", "functional", "sequential", "custom:Sampling"),
        *("custom:Gated", "custom:Block", "custom:PatchEncoder", "slice", "concat", "matmul"),
    }
)
"""What occurs within `SEEDS` in models of either library."""

OPTIMIZERS: Final = frozenset(
    {
        *("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "Nadam", "Ftrl"),
        *("Lion", "Adafactor", "LossScaleOptimizer"),
    }
)


@cache
def recipes(library: str) -> tuple[Recipe, ...]:
    """Return the models of all seeds."""
    return tuple(recipe_from_seed(seed, library) for seed in SEEDS)


@THOROUGH
@pytest.mark.parametrize("library", LIBRARIES)
def test_another_process_draws_the_same(library: str) -> None:
    """A seed reproduces a failure, whatever the order of sets is."""
    code = (
        "import hashlib, sys; from tests.random_models.test_recipes import digest; "
        f"print(digest('{library}'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest(library)


def digest(library: str) -> str:
    """Return a hash of some descriptions."""
    text = "\n".join(to_json(recipe_from_seed(seed, library)) for seed in range(50))
    return hashlib.sha256(text.encode()).hexdigest()


@THOROUGH
@pytest.mark.parametrize("library", LIBRARIES)
def test_descriptions_survive_json(library: str) -> None:
    """In full, and as people are shown them."""
    for recipe in recipes(library)[:300]:
        assert from_json(to_json(recipe)) == recipe
        assert from_json(json.dumps(short_form(recipe))) == recipe


@THOROUGH
@pytest.mark.parametrize("library", LIBRARIES)
def test_all_ordinary_layers_and_shapes_occur(library: str) -> None:
    """A layer that is never drawn is never proven."""
    actual = {node.what for recipe in recipes(library) for node in recipe.graph.walk()}
    assert actual >= COMMON
    assert {recipe.family for recipe in recipes(library)} == {"random", "subclassed", *WELL_KNOWN}


@pytest.mark.parametrize("library", LIBRARIES)
def test_all_optimizers_policies_and_containers_occur(library: str) -> None:
    """The same of what a model is trained and saved with."""
    trained = [recipe.training for recipe in recipes(library) if recipe.training is not None]
    assert {item.optimizer["class"] for item in trained} >= OPTIMIZERS
    assert {recipe.policy for recipe in recipes(library)} == {
        *("float32", "float64", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16")
    }
    assert {recipe.container for recipe in recipes(library)} == (
        {"keras", "h5"} if library == "keras" else {"keras", "h5", "tf"}
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_nodes_refer_to_earlier_ones_and_lead_to_outputs(library: str) -> None:
    """Functional models cannot hold anything else."""
    for recipe in recipes(library):
        _check_order(recipe.graph)


def _check_order(graph: Graph) -> None:
    known = {spec.id for spec in graph.inputs}
    for node in graph.nodes:
        assert set(references(node)) <= known
        known.add(node.id)
        if node.graph is not None:
            _check_order(node.graph)
    assert {ref.partition(":")[0] for ref in graph.outputs} <= known
    assert prune(graph).nodes == graph.nodes


@THOROUGH
@pytest.mark.parametrize("library", LIBRARIES)
def test_shrinking_gives_smaller_models_that_can_be_built(library: str) -> None:
    """Each candidate is a model with outputs; those with a node less are in order."""
    for recipe in recipes(library)[:40]:
        for kind in (cuts, bypasses, simplifications):
            for one in kind(recipe):
                assert one != recipe
                assert one.graph.outputs
        for one in bypasses(recipe):
            assert size(one) < size(recipe)
            _check_order(one.graph)
