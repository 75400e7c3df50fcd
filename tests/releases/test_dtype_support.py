"""
What is known of layer classes under policies is what the real libraries said, and is asked in the
right way.
"""

from __future__ import annotations

import pytest

from policytool.releases import dtype_support

TF_KERAS = "tf_keras2.21"
KERAS = "keras3.15"


@pytest.mark.parametrize("library", [TF_KERAS, KERAS])
def test_kernels_that_do_not_exist(library: str) -> None:
    """MaxPooling3D has none in float16; bfloat16 and float32 it has."""
    assert dtype_support.layer_failure(library, "MaxPooling3D", "mixed_float16")
    assert dtype_support.layer_failure(library, "MaxPooling3D", "float64")
    assert not dtype_support.layer_failure(library, "MaxPooling3D", "mixed_bfloat16")
    assert not dtype_support.layer_failure(library, "Dense", "float16")


@pytest.mark.parametrize("library", [TF_KERAS, KERAS])
def test_failure_of_an_initializer_is_not_a_failure_of_the_layer(library: str) -> None:
    """A default LSTM fails in bfloat16 only because of Orthogonal."""
    assert not dtype_support.layer_failure(library, "LSTM", "bfloat16")
    assert dtype_support.initializer_failure(library, "Orthogonal", "bfloat16")
    assert not dtype_support.initializer_failure(library, "Orthogonal", "float16")
    assert not dtype_support.initializer_failure(library, "GlorotUniform", "bfloat16")


def test_lookup_is_checked_with_arguments_that_accept_floats() -> None:
    """
    A lookup that returns integers rejects every float dtype, and one that encodes supports float64
    and float32.
    """
    assert not dtype_support.build_failure(TF_KERAS, "StringLookup", "float64")
    assert dtype_support.build_failure(TF_KERAS, "StringLookup", "mixed_float16")


def test_variables_that_do_not_follow_the_policy() -> None:
    """BatchNormalization of Keras 2 keeps float32 under pure 16-bit policies, Keras 3's follows."""
    assert (
        dtype_support.variable_dtype(TF_KERAS, "BatchNormalization", "float16", "gamma")
        == "float32"
    )
    assert (
        dtype_support.variable_dtype(TF_KERAS, "BatchNormalization", "mixed_float16", "gamma")
        is None
    )
    assert dtype_support.variable_dtype(KERAS, "BatchNormalization", "float16", "gamma") is None


def test_outputs_that_do_not_have_the_compute_dtype() -> None:
    """UpSampling2D of Keras 2 interpolates in float32."""
    assert (
        dtype_support.output_dtype(TF_KERAS, "UpSampling2D", "bilinear", "mixed_float16")
        == "float32"
    )
    assert dtype_support.output_dtype(TF_KERAS, "UpSampling2D", "nearest", "mixed_float16") is None


def test_unmeasured_classes_and_releases_have_no_failure() -> None:
    """The cases are a custom class and a release without measurements."""
    assert dtype_support.layer_failure(TF_KERAS, "Mine", "float16") is None
    assert dtype_support.layer_failure("tf1.15", "MaxPooling3D", "float16") is None
