"""What was asked of the releases about classes and keys, as lookups."""

from __future__ import annotations

import json
from typing import Final

from policytool.releases import known_arguments
from policytool.releases.releases import LOADERS
from tests.helpers.paths import FIXTURES

DENSE: Final = {"units": 4, "activation": "linear"}


def test_data_has_a_column_for_every_release_with_verdicts() -> None:
    """The data of the arguments covers each of these releases."""
    assert set(LOADERS) < set(known_arguments.measurements()["columns"])


def test_key_is_incompatible_with_releases_that_do_not_know_the_key() -> None:
    """
    Keras 3.13 introduced this key. The newest Keras accepts it, and all releases accept a config
    without it.
    """
    result = known_arguments.objection(
        "keras3.6", "layers", "Dense", {**DENSE, "quantization_config": None}, module=True
    )
    assert result == known_arguments.Objection(refused=("quantization_config",))
    assert (
        known_arguments.objection(
            "keras3.15", "layers", "Dense", {**DENSE, "quantization_config": None}, module=True
        )
        is None
    )
    assert all(
        known_arguments.objection(loader, "layers", "Dense", DENSE, module=False) is None
        for loader in LOADERS
    )


def test_missing_required_key_is_reported() -> None:
    """From TF 2.5 on, a MultiHeadAttention of Keras 2 needs its shapes."""
    config = {"num_heads": 2, "key_dim": 4}
    assert known_arguments.objection(
        "tf2.5", "layers", "MultiHeadAttention", config, module=False
    ) == known_arguments.Objection(lacking=("key_shape", "query_shape", "value_shape"))
    assert (
        known_arguments.objection("tf2.4", "layers", "MultiHeadAttention", config, module=False)
        is None
    )


def test_value_of_a_known_key_can_be_incompatible() -> None:
    """In HDF5, Keras 3.15 takes the name ``dot`` for a function, and rejects its own default."""
    config = {"use_scale": False, "score_mode": "dot", "dropout": 0.0}
    assert known_arguments.objection(
        "keras3.15", "layers", "Attention", config, module=False
    ) == known_arguments.Objection(values=(("score_mode", '"dot"'),))
    assert (
        known_arguments.objection("keras3.15", "layers", "Attention", config, module=True) is None
    )
    assert "score_mode" in known_arguments.valued_keys("layers", "Attention")


def test_class_is_missing_in_older_releases_and_in_keras3() -> None:
    """One class was added later, and one was removed in Keras 3."""
    assert known_arguments.objection(
        "tf2.9", "layers", "GroupNormalization", {}, module=False
    ) == known_arguments.Objection(missing=True)
    assert known_arguments.objection(
        "keras3.0", "layers", "LocallyConnected1D", {}, module=False
    ) == known_arguments.Objection(missing=True)
    assert not known_arguments.is_known("layers", "Pair")


def test_keys_that_no_release_writes_are_unknown() -> None:
    """The behaviour of releases for these keys was not measured."""
    assert known_arguments.unknown_keys(
        "layers", "Dense", ("units", "name", "batch_input_shape", "kernel_scaling")
    ) == ("kernel_scaling",)
    keys = ("activity_regularizer", "kernel_scaling")
    assert known_arguments.unknown_keys("layers", "Attention", keys) == ("kernel_scaling",)


def test_key_without_an_argument_is_refused() -> None:
    """A release knows only the arguments of its class, unless it takes any key."""
    for loader, name, key, is_refused in (
        ("tf2.15", "Dense", "my_option", True),
        ("keras3.15", "InputLayer", "my_option", False),
        ("keras3.15", "Dense", "batch_size", True),
        ("tf2.15", "Dense", "batch_size", False),
    ):
        config = {"units": 4, "batch_shape": [None, 4], key: 1}
        found = known_arguments.objection(loader, "layers", name, config, module=False)
        assert (key in (found.refused if found else ())) is is_refused, (loader, name, key)
    assert known_arguments.accepting_loaders("layers", "Dense", "my_option") == frozenset()
    lacking = known_arguments.objection("keras3.0", "layers", "RNN", {}, module=True)
    assert lacking == known_arguments.Objection(lacking=("cell",))


def test_default_values_equal_those_that_releases_write() -> None:
    """The gates of an LSTM had another default up to TF 1.15."""
    values = known_arguments.written_values("layers", "LSTM", "recurrent_activation")
    assert {value: "tf1.15" in releases for value, releases in values.items()} == {
        '"hard_sigmoid"': True,
        '"sigmoid"': False,
    }


def test_activations_of_one_name_may_be_two_functions() -> None:
    """
    A release that was not asked computes as its family does; of a function that all agree on there
    is nothing to say.
    """
    assert (
        known_arguments.activation_values("hard_sigmoid", "tf2.15")
        == known_arguments.activation_values("hard_sigmoid", "tf2.7")
        == (0.0, 0.3, 0.7, 1.0)
    )
    assert (
        known_arguments.activation_values("hard_sigmoid", "keras3.15")
        == known_arguments.activation_values("hard_sigmoid", "keras3.9")
        != known_arguments.activation_values("hard_sigmoid", "tf2.7")
    )
    assert known_arguments.activation_values("relu", "tf2.15") is None


def test_data_has_one_class_per_line() -> None:
    """
    A new release is then a readable change. The file is small, because every inspection reads it.
    """
    text = (
        FIXTURES.parent / "policytool" / "releases" / "data" / "layer_arguments.json"
    ).read_text(encoding="utf-8")
    assert len(text) < 250_000
    assert (
        sum(len(classes) for classes in json.loads(text).values() if isinstance(classes, dict))
        == sum('": {' in line for line in text.splitlines()) - 6
    )
