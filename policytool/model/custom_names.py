"""
What a layer's config names that is not Keras' own: activations, initialisers, regularisers and
constraints of someone else's.

A loader without them cannot build the layer, though its class is Keras' own. The names were asked
of ``deserialize`` in every release from TF 2.2 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policytool.releases import keras_objects
from policytool.releases.layer_classes import builtin_classes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ACTIVATIONS: Final = frozenset(
    {
        *(
            "elu",
            "exponential",
            "gelu",
            "hard_sigmoid",
            "leaky_relu",
            "linear",
            "log_softmax",
            "mish",
            "relu",
            "relu6",
            "selu",
            "sigmoid",
            "silu",
        ),
        *("softmax", "softplus", "softsign", "swish", "tanh"),
    }
)
FIRST_BUILT: Final[Mapping[str, str]] = {
    "gelu": "tf2.4",
    "silu": "tf2.9",
    "leaky_relu": "tf2.9",
    "relu6": "tf2.9",
    "log_softmax": "tf2.9",
    "mish": "tf2.15",
}
"""
Activations that older loaders do not know, and the first of those that were asked that does: in an
older one the layer is revived from traces.
"""

_OBJECTS: Final = frozenset(
    {
        *(
            "Constant",
            "GlorotNormal",
            "GlorotUniform",
            "HeNormal",
            "HeUniform",
            "Identity",
            "IdentityInitializer",
            "LecunNormal",
            "LecunUniform",
            "Ones",
        ),
        *(
            "Orthogonal",
            "OrthogonalInitializer",
            "RandomNormal",
            "RandomUniform",
            "TruncatedNormal",
            "VarianceScaling",
            "Zeros",
        ),
        *(
            "L1",
            "L2",
            "L1L2",
            "OrthogonalRegularizer",
            "MaxNorm",
            "MinMaxNorm",
            "NonNeg",
            "RadialConstraint",
            "UnitNorm",
        ),
    }
)
_ALIASES: Final = frozenset(
    {
        *(
            "constant",
            "glorot_normal",
            "glorot_uniform",
            "he_normal",
            "he_uniform",
            "identity",
            "lecun_normal",
            "lecun_uniform",
            "normal",
            "one",
            "ones",
        ),
        *(
            "orthogonal",
            "random_normal",
            "random_uniform",
            "truncated_normal",
            "uniform",
            "variance_scaling",
            "zero",
            "zeros",
        ),
        *(
            "l1",
            "l2",
            "l1_l2",
            "max_norm",
            "maxnorm",
            "min_max_norm",
            "non_neg",
            "nonneg",
            "radial_constraint",
            "unit_norm",
            "unitnorm",
        ),
    }
)
_ACTIVATION: Final = "activation"
_ENDINGS: Final = ("_initializer", "_regularizer", "_constraint")


def names(config: Mapping[str, object]) -> Iterator[str]:
    """Yield what a layer's own config names and Keras has not."""
    for key, value in config.items():
        if key.endswith(_ACTIVATION):
            yield from (
                name
                for name in activations(value)
                if name not in _ACTIVATIONS and name not in builtin_classes()
            )
        elif key.endswith(_ENDINGS):
            named = keras_objects.class_of(value) if isinstance(value, dict) else value
            if isinstance(named, str) and named not in _OBJECTS | _ALIASES:
                yield named


def activations(value: object) -> Iterator[str]:
    """
    Yield the name of an activation: a function, by its name alone or serialised, or a layer's
    class.
    """
    if (name := keras_objects.name_of(value)) is not None:
        yield name
