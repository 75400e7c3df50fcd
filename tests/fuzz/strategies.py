"""
Models of every format as Hypothesis draws them: sound ones, and the same with changes.

A config is drawn from what Keras writes: a generation's frame, classes of layers with keys that
they have, policies in all their spellings, layers in wrappers, models in models, calls that lead
from one layer to the next. What is drawn shrinks, so a failure is a small model.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any, Final

import h5py
from hypothesis import strategies as st

from tests.fuzz import containers, trees, words
from tests.helpers import bundles, small_models
from tests.helpers.small_models import Object, instance, keras_object

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random

Config = dict[str, Any]

NAMES: Final = st.one_of(
    st.sampled_from(("dense_a", "mlp", "lstm", "a/b", "embedding", "é")),
    st.text(min_size=1, max_size=12),
)
POLICIES: Final = st.sampled_from(words.POLICIES)
VERSIONS: Final = st.sampled_from(
    (
        "2.2.4",
        "2.2.4-tf",
        "2.3.1",
        "2.4.0",
        "2.6.0",
        "2.12.0",
        "2.15.0",
        "3.0.5",
        "3.3.3",
        "3.6.0",
        "3.15.1",
    )
)
_LEAVES: Final = st.sampled_from(
    (
        "Dense",
        "Activation",
        "LSTM",
        "Embedding",
        "BatchNormalization",
        "Conv2D",
        "Dropout",
        "Lambda",
        "Rescaling",
        "MultiHeadAttention",
    )
)
_WRAPPERS: Final = st.sampled_from(("TimeDistributed", "Bidirectional", "SpectralNormalization"))
_VALUES: Final = st.one_of(
    st.integers(0, 8),
    st.floats(allow_nan=False, width=32),
    st.booleans(),
    st.none(),
    st.sampled_from(("relu", "softmax", "same", "channels_last")),
)


@st.composite
def layers(draw: st.DrawFn) -> Config:
    """Draw one layer with a policy and some of the keys that layers have."""
    config = {
        "name": draw(NAMES),
        "trainable": True,
        "dtype": draw(POLICIES),
        "units": draw(st.integers(1, 4)),
    }
    config |= draw(st.dictionaries(st.sampled_from(words.KEYS), _VALUES, max_size=3))
    return {"class_name": draw(_LEAVES), "config": config}


def _around(inner: st.SearchStrategy[Config]) -> st.SearchStrategy[Config]:
    """Return layers that hold others: wrappers, recurrent layers with cells, models."""
    wrapped = st.builds(
        lambda name, kind, one: {"class_name": kind, "config": {"name": name, "layer": one}},
        NAMES,
        _WRAPPERS,
        inner,
    )
    stacked = st.builds(
        lambda name, cells: instance(
            "RNN", name=name, cell={"class_name": "StackedRNNCells", "config": {"cells": cells}}
        ),
        NAMES,
        st.lists(inner, max_size=2),
    )
    return st.one_of(wrapped, stacked, sequentials(inner), functionals(inner))


def sequentials(inner: st.SearchStrategy[Config]) -> st.SearchStrategy[Config]:
    """Return Sequential models of layers."""
    return st.builds(
        lambda name, held: {"class_name": "Sequential", "config": {"name": name, "layers": held}},
        NAMES,
        st.lists(inner, min_size=1, max_size=4),
    )


@st.composite
def functionals(draw: st.DrawFn, inner: st.SearchStrategy[Config]) -> Config:
    """
    Draw a functional model whose layers are called with what any of them gives, those after them
    among them, in the words of Keras 2 or 3.
    """
    held = [
        instance("InputLayer", name="input", batch_input_shape=[None, 4], dtype="float32"),
        *draw(st.lists(inner, max_size=3)),
    ]
    names = [item["config"]["name"] for item in held]
    keras3 = draw(st.booleans())
    called = [
        {
            **one,
            "name": name,
            "inbound_nodes": [_call(draw(st.sampled_from(names)), keras3=keras3)] if index else [],
        }
        for index, (one, name) in enumerate(zip(held, names, strict=True))
    ]
    ends = {
        "input_layers": [[names[0], 0, 0]],
        "output_layers": [[draw(st.sampled_from(names)), 0, 0]],
    }
    return {
        "class_name": "Functional",
        "config": {"name": draw(NAMES), "trainable": True, "layers": called, **ends},
    }


def _call(source: str, *, keras3: bool) -> Any:
    tensor = instance(
        "__keras_tensor__", shape=[None, 4], dtype="float32", keras_history=[source, 0, 0]
    )
    return {"args": [tensor], "kwargs": {}} if keras3 else [[source, 0, 0, {}]]


MODELS: Final = st.recursive(layers(), _around, max_leaves=6).filter(
    lambda one: one["class_name"] in {"Sequential", "Functional"}
)
"""Models, others within them."""


@st.composite
def architectures(draw: st.DrawFn) -> Config:
    """Draw a model as ``to_json`` writes it."""
    return {**draw(MODELS), "keras_version": draw(VERSIONS), "backend": "tensorflow"}


@st.composite
def changed(draw: st.DrawFn) -> tuple[Config, Any]:
    """Draw a model, and the same with some changes."""
    sound = draw(architectures())
    rng: Random = draw(st.randoms(use_true_random=False))
    return sound, trees.mutated(rng, json.loads(json.dumps(sound)), 3)


TRAINING: Final = st.fixed_dictionaries(
    {"loss": st.sampled_from(("mse", None, {"a": "mae"}))},
    optional={
        "optimizer_config": st.builds(
            lambda name, inner: instance(
                name, learning_rate=0.1, inner_optimizer=inner, loss_scale=words.SCALE
            ),
            st.sampled_from(("Adam", "SGD", "LossScaleOptimizer", "LossScaleOptimizerV3")),
            st.sampled_from((None, {"class_name": "SGD", "config": {}})),
        ),
        "metrics": st.sampled_from(
            ([], ["accuracy"], [[{"class_name": "Mean", "config": {"dtype": "float16"}}]])
        ),
    },
)

FORMATS: Final = (
    "h5",
    "keras",
    "keras2-archive",
    "savedmodel",
    "metadata",
    "json",
    "yaml",
    "tfjs",
    "checkpoint",
)


def write(kind: str, config: Any, directory: Path, rng: Random, training: Any = None) -> Path:
    """
    Write a model of a format, whose container is sound where ``rng`` leaves it so; return its path.
    """
    text = trees.text(rng, config)
    match kind:
        case "h5":
            path = small_models.h5_model(
                directory / "model.h5", text.replace(b"\0", b"0").decode("utf-8", "replace")
            )
            if training is not None:
                with h5py.File(path, "a") as file:
                    file.attrs["training_config"] = json.dumps(training)
            return path
        case "keras" | "keras2-archive":
            return _archive(kind, text, directory, rng)
        case "savedmodel" | "metadata":
            return _saved(kind, config, directory, rng)
        case "yaml":
            (directory / "model.yaml").write_bytes(text)  # JSON is YAML
            return directory / "model.yaml"
        case "tfjs":
            weights = [
                {
                    "paths": ["group1-shard1of1.bin"],
                    "weights": [{"name": "dense_a/kernel", "shape": [2, 2], "dtype": "float32"}],
                }
            ]
            topology = {
                "format": "layers-model",
                "modelTopology": {"model_config": config},
                "weightsManifest": trees.mutated(rng, weights),
            }
            (directory / "model.json").write_bytes(trees.text(rng, topology))
        case "checkpoint":
            bundles.write(
                directory / "w",
                {"dense_a/kernel/.ATTRIBUTES/VARIABLE_VALUE": ("float32", (2,), bytes(8))},
            )
            index = directory / "w.index"
            index.write_bytes(containers.table(rng, index.read_bytes()))
            return index
        case _:
            (directory / "model.json").write_bytes(text)
    return directory / "model.json"


def _archive(kind: str, text: bytes, directory: Path, rng: Random) -> Path:
    version = "3.6.0" if kind == "keras" else "2.15.0"
    members = {
        **small_models.keras_members(text or b"{}"),
        "metadata.json": json.dumps({"keras_version": version}).encode(),
    }
    path = directory / "model.keras"
    if rng.random() < 0.5:
        path.write_bytes(containers.archive(rng, members))
        return path
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as made:
        for name, data in members.items():
            made.writestr(name, data)
    path.write_bytes(buffer.getvalue())
    return path


def _saved(kind: str, config: Any, directory: Path, rng: Random) -> Path:
    """
    Write a SavedModel whose objects are the layers of a config, its metadata apart or not; edges
    may lead anywhere.
    """
    inner = config.get("config") if isinstance(config, dict) else None
    held = inner.get("layers") if isinstance(inner, dict) else None
    result = [item for item in held if isinstance(item, dict)][:6] if isinstance(held, list) else []
    count = len(result) + 2
    objects = [
        keras_object(
            "mlp",
            "Sequential",
            identifier="_tf_keras_sequential",
            children=[(f"layer-{at}", at + 1) for at in range(len(result))],
            config=inner,
        )
    ]
    for item in result:
        edges = [
            ("kernel", count - 1),
            (rng.choice(("layer", "cell", "a")), rng.randrange(-1, count + 1)),
        ]
        objects.append(
            keras_object(
                "layer", str(item.get("class_name")), children=edges, config=item.get("config")
            )
        )
    objects.append(
        Object(
            variable=(
                "dense_a/kernel",
                rng.choice((1, 19, 14, 101, 9999)),
                (rng.choice((0, 6, -1, 2**62)), 2),
            )
        )
    )
    path = small_models.saved_model(
        directory / "model", objects, separate=kind == "metadata" or rng.random() < 0.5
    )
    if kind == "metadata":
        return path / "keras_metadata.pb"
    if rng.random() < 0.5:
        file = path / rng.choice(sorted(item.name for item in path.iterdir()))
        file.write_bytes(containers.message(rng, file.read_bytes()))
    return path
