"""The dtype of each tensor of a network."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from policytool.migration.convert.architecture import Network, Role, Unit
from policytool.migration.convert.ordering import Edge, implicit_edges, order_layers
from policytool.migration.convert.target import Target
from policytool.migration.convert.tensor_facts import entry_dtypes, is_cast, network_dtypes
from policytool.model.calls import Call, Reference
from policytool.releases import keras_operations
from policytool.releases.keras_operations import operation_results, rows_by_operation
from policytool.releases.policy import PolicyMap, policy_from_name
from policytool.support.steps import budget

if TYPE_CHECKING:
    from policytool.migration.convert.architecture import Value
    from policytool.model.calls import Argument

DEPTH = 200


def to(name: str, call: int = 0, output: int = 0) -> Reference:
    """Return an output of a call."""
    return Reference(layer=name, call=call, output=output)


def start(name: str, dtype: str) -> Unit:
    """Return an input layer."""
    return Unit(class_name="InputLayer", name=name, config={"dtype": dtype})


def layer(class_name: str, name: str, *args: Argument, policy: str | None = None) -> Unit:
    """Return a layer with one call, and with a policy if the file contains one."""
    config: dict[str, Value] = {"dtype": None if policy is None else policy_from_name(policy)}
    return Unit(class_name=class_name, name=name, config=config, calls=(Call(args=args),))


def encoder(class_name: str, *, policy: str) -> Unit:
    """Return a layer that encodes words or numbers."""
    return layer(class_name, "e", to("whole"), policy=policy).with_config(output_mode="count")


def operation(name: str, *args: Argument, **config: Value) -> Unit:
    """Return an operation with one call, named after its module and class."""
    module, _, class_name = name.partition(".")
    return Unit(
        class_name=class_name,
        name=name,
        module=f"{keras_operations.MODULES}{module}",
        config=config,
        role=Role.OPERATION,
        calls=(Call(args=args),),
    )


def nested(name: str, network: Network, *calls: Argument) -> Unit:
    """Return a model that is called with each of ``calls``, as a layer."""
    return Unit(
        class_name="Sequential" if network.is_chain else "Functional",
        name=name,
        config={},
        role=Role.MODEL,
        network=network,
        calls=tuple(Call(args=(argument,)) for argument in calls),
    )


def graph(*units: Unit) -> Network:
    """Return a functional network with the output of its last unit."""
    inputs: list[Argument] = [to(unit.name) for unit in units if unit.class_name == "InputLayer"]
    return Network(units=units, inputs=inputs, outputs=to(units[-1].name))


@pytest.mark.parametrize(
    ("unit", "dtype"),
    [
        (layer("Dense", "d", to("half"), policy="mixed_float16"), "float16"),
        (layer("Dense", "d", to("whole"), policy="float64"), "float64"),
        (layer("Dense", "d", to("half")), "float32"),
        (layer("Flatten", "f", to("whole"), policy="float32"), "int32"),
        (layer("Flatten", "f", to("half"), policy="float32"), "float32"),
        (layer("StringLookup", "s", to("whole"), policy="float32"), None),
        (encoder("StringLookup", policy="float16"), "float32"),
        (encoder("StringLookup", policy="float64"), None),
        (encoder("CategoryEncoding", policy="mixed_float16"), "float16"),
        (encoder("Hashing", policy="mixed_float16"), "float32"),
        (encoder("CategoryEncoding", policy="int64"), None),
        (operation("numpy.Equal", to("half"), 1.0), "bool"),
        (operation("core.Cast", to("half"), dtype="float64"), "float64"),
        (operation("numpy.GetItem", to("whole"), [0]), "int32"),
        (operation("linalg.SVD", to("half")), "float16"),
        (operation("math.CDist", to("half"), to("single")), "float32"),
        (operation("numpy.Isreal", to("half")), "bool"),
        (operation("core.Map", to("half")), None),
        (operation("numpy.Roll", to("unknown")), None),
    ],
)
def test_call_result_has_the_dtype_of_the_library(unit: Unit, dtype: str | None) -> None:
    """
    The result of a call has the dtype of the symbolic tensor in Keras 3.15, or None if the dtype
    depends on more than the config.
    """
    inputs = (start("half", "float16"), start("single", "float32"), start("whole", "int32"))
    assert network_dtypes(graph(*inputs, unit)).of(to(unit.name)) == dtype


@pytest.mark.parametrize(
    ("interpolation", "release", "dtype"),
    [
        ("bilinear", "tf_keras2.21", "float32"),
        ("nearest", "tf_keras2.21", "float16"),
        ("bilinear", None, "float16"),
    ],
)
def test_keras_2_interpolates_in_float32(
    interpolation: str, release: str | None, dtype: str
) -> None:
    """
    UpSampling2D interpolates in float32 in Keras 2 regardless of its policy, and in the policy's
    dtype in Keras 3 (measured).
    """
    unit = layer("UpSampling2D", "up", to("half"), policy="mixed_float16")
    network = graph(start("half", "float16"), unit.with_config(interpolation=interpolation))
    assert network_dtypes(network, release).of(to("up")) == dtype


def test_policy_map_applies_its_default_policy() -> None:
    """
    A layer with a map of policies computes in the default policy unless the map names the layer.
    """
    policies = PolicyMap(default=policy_from_name("float16"), policies=())
    unit = replace(layer("Dense", "d", to("x")), config={"dtype": policies})
    assert network_dtypes(graph(start("x", "float32"), unit)).of(to("d")) == "float16"
    assert is_cast(unit, "float32")


def test_only_floats_are_cast() -> None:
    """A layer casts only floats, because Keras passes tensors of other dtypes unchanged."""
    unit = layer("Activation", "a", to("x"), policy="float16")
    assert is_cast(unit, "float32")
    assert not is_cast(unit, "float16")
    assert not is_cast(unit, "int32")
    assert not is_cast(unit, None)


def test_nested_sequential_has_the_dtype_of_its_last_layer() -> None:
    chain = Network(
        units=(start("in", "float64"), replace(layer("Dense", "d", policy="float16"), calls=()))
    )
    known = network_dtypes(graph(start("x", "float32"), nested("inner", chain, to("x"))))
    assert known.of(to("inner")) == "float16"
    assert entry_dtypes(chain) == ["float64"]
    assert entry_dtypes(Network(units=chain.units[1:])) == [None]
    assert entry_dtypes(Network(units=())) == [None]


def test_each_output_of_a_nested_model_has_its_dtype() -> None:
    inner = replace(
        graph(start("in", "int32"), layer("Dense", "d", to("in"), policy="float16")),
        outputs=[to("d"), to("in")],
    )
    known = network_dtypes(graph(start("x", "int32"), nested("inner", inner, to("x"))))
    assert [known.of(to("inner", output=number)) for number in range(3)] == [
        "float16",
        "int32",
        None,
    ]


def test_a_model_that_is_called_again_and_again_is_read_once() -> None:
    """Nested models that are each called twice would have too many calls to read."""
    network = graph(start("x", "float32"), layer("Dense", "d", to("x"), policy="float16"))
    for _ in range(DEPTH):
        model = nested("inner", network, to("x"), to("x"))
        both: list[Argument] = [to("inner"), to("inner", 1)]
        network = graph(start("x", "float32"), model, layer("Add", "add", both, policy="float16"))
    with budget("model.keras") as steps:
        assert network_dtypes(network).of(to("inner", 1)) == "float16"
        assert steps.spent < 10 * DEPTH
        before = steps.spent
        assert network_dtypes(network) is network_dtypes(network)
        assert steps.spent == before
    assert network_dtypes(replace(network)) is not network_dtypes(network)


def test_operations_with_special_result_dtypes_have_no_general_row() -> None:
    """
    An operation with a special result dtype has no general row that contradicts it, and each such
    operation exists in a release.
    """
    for name in operation_results():
        module, _, class_name = name.partition(".")
        assert keras_operations.is_known(module, class_name), name
        assert (module, class_name) not in rows_by_operation(), name


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("keras3.6", ["x", "y", "d3", "d2", "d1", "add"]),
        ("keras3.15", ["y", "x", "d3", "d2", "d1", "add"]),
    ],
)
def test_layer_casts_the_result_of_a_cast(release: str, expected: list[str]) -> None:
    """
    A layer casts the result of a Cast operation to its own dtype, which changes the order of layers
    (measured with Keras 3.6.0 and 3.15.1).
    """
    network = graph(
        *(start("x", "float16"), start("y", "float16")),
        layer("Dense", "d3", to("y"), policy="float16"),
        layer("Dense", "d2", to("d3"), policy="float16"),
        operation("core.Cast", to("x"), dtype="float32"),
        layer("Dense", "d1", to("core.Cast"), policy="float16"),
        layer("Add", "add", [to("d2"), to("d1")], policy="float16"),
    )
    root = order_layers(nested("model", network), Target(loader=release, container="keras"))
    assert root.network is not None
    names = [unit.name for unit in root.network.units if unit.role is not Role.OPERATION]
    assert names == expected


def test_integers_of_a_discretization_are_cast_while_a_model_is_built() -> None:
    """
    While building a model, Keras 3.6.0 adds a cast between a Discretization and a layer of another
    dtype (measured).
    """
    start_x = start("x", "float32")
    bins = layer("Discretization", "bins", to("x"), policy="float16")
    dense = layer("Dense", "dense", to("bins"), policy="float32")
    network = graph(start_x, bins, dense)
    edges = implicit_edges(network, Target(loader="keras3.6", container="keras"))
    assert edges.calls["dense", 0] == [Edge(("bins", 0), 1)]
    assert network_dtypes(network).of(to("bins")) is None


@pytest.mark.parametrize(
    ("dtype", "inside", "is_cast_around"),
    [
        ("float16", "float32", True),
        ("float32", "float16", True),
        ("float16", "float16", False),
        ("int32", "float32", False),
    ],
)
def test_nested_sequential_casts_its_input_in_the_outer_graph(
    dtype: str, inside: str, *, is_cast_around: bool
) -> None:
    """
    In Keras 3.5 to 3.9 a nested Sequential adds a cast of its input to the graph around it, and a
    nested functional model does not (measured with 3.5.0, 3.6.0 and 3.9.2).
    """
    release = Target(loader="keras3.6", container="keras")
    dense = layer("Dense", "d", to("in"), policy="float16")
    for network in (Network(units=(start("in", inside), dense)), graph(start("in", inside), dense)):
        model = nested("model", network, to("x"))
        edges = implicit_edges(graph(start("x", dtype), model), release)
        expected = [Edge(("x", 0), 1)] if is_cast_around and network.is_chain else []
        assert edges.calls["model", 0] == expected


@pytest.mark.parametrize(
    ("release", "inside", "expected"),
    [
        ("keras3.3", "float16", [Edge(("m", 0), 0, is_mask=True)]),
        ("keras3.3", "float32", [Edge(("m", 0), 0, is_mask=True)]),
        ("keras3.6", "float16", [Edge(("m", 0), 0, is_mask=True)]),
        ("keras3.6", "float32", [Edge(("m", 0), 1)]),
        ("keras3.15", "float16", [Edge(("m", 0), 0, is_mask=True)]),
        ("keras3.15", "float32", []),
    ],
)
def test_a_chain_that_casts_gets_no_mask(release: str, inside: str, expected: list[Edge]) -> None:
    """
    A Sequential that casts its input receives no mask from Keras 3.5 on (measured with Keras 3.0,
    3.3, 3.4, 3.6, 3.10 and 3.15).
    """
    masking = layer("Masking", "m", to("x"), policy="float16")
    chain = Network(units=(start("in", inside), layer("LSTM", "l", to("in"), policy="float16")))
    network = graph(start("x", "float16"), masking, nested("model", chain, to("m")))
    edges = implicit_edges(network, Target(loader=release, container="keras"))
    assert edges.calls["model", 0] == expected


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ("keras3.3", [Edge(("m", 0), 0, is_mask=True)]),
        ("keras3.6", None),
        ("keras3.15", [Edge(("m", 0), 0, is_mask=True)]),
    ],
)
def test_a_cast_may_lose_the_mask(release: str, expected: list[Edge] | None) -> None:
    """
    A Dense whose dtype differs from its input's loses the mask in some releases (measured with
    Keras 3.3.3, 3.6.0 and 3.15.1).
    """
    masking = layer("Masking", "m", to("x"), policy="float16")
    dense = layer("Dense", "dense", to("m"), policy="float32")
    network = graph(start("x", "float16"), masking, dense)
    edges = implicit_edges(network, Target(loader=release, container="keras"))
    assert edges.masks.get(("dense", 0)) == expected
