"""
Models of one shape in any size: chains, diamonds, nests, long names, wide and deep ones, as configs
of Keras 2 and Keras 3.
"""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.helpers.convertible_models import input2, input3, layer2, layer3, policy, tensor
from tests.helpers.small_models import h5_model, instance, instance3, keras_members, keras_zip

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Config = dict[str, Any]

_WIDTH: Final = 2
_WRITER: Final = {"keras_version": "2.15.0", "backend": "tensorflow"}


def _nodes(calls: Sequence[Sequence[tuple[str, int]]]) -> list[list[object]]:
    """Return calls with lists of tensors, as Keras 2 writes them."""
    return [[[source, call, 0, {}] for source, call in tensors] for tensors in calls]


class Keras2:
    """How Keras 2 writes a functional model."""

    name = "keras2"

    def input(self, name: str = "x") -> Config:
        """Return an input layer."""
        return input2(name, _WIDTH)

    def layer(
        self, class_name: str, name: str, *calls: Sequence[tuple[str, int]], **config: object
    ) -> Config:
        """Return a layer that is called with each of these lists of tensors."""
        return layer2(class_name, name, *_nodes(calls), **config)

    def model(
        self, name: str, layers: Sequence[Config], *calls: Sequence[tuple[str, int]]
    ) -> Config:
        """Return a functional model, called with each of these lists of tensors."""
        own = {"name": name, "inbound_nodes": _nodes(calls)}
        return {**instance("Functional", **_graph(name, layers)), **own}

    def root(self, *layers: Config, name: str = "model") -> Config:
        """Return a whole model."""
        return {**instance("Functional", **_graph(name, layers)), **_WRITER}

    def sequential(self, layers: Sequence[Config], name: str = "model") -> Config:
        """Return a whole model that is a chain."""
        return {**instance("Sequential", name=name, layers=list(layers)), **_WRITER}

    def policy(self, name: str) -> object:
        """Return a policy."""
        return instance("Policy", name=name)

    def operation(self, name: str, source: tuple[str, int]) -> Config:
        """Return an operation that is called with one tensor."""
        return layer2(
            "TFOpLambda",
            name,
            [[*source, 0, {"y": 1.0, "name": None}]],
            function="math.add",
        )


class Keras3:
    """How Keras 3 writes a functional model."""

    name = "keras3"

    def input(self, name: str = "x") -> Config:
        """Return an input layer."""
        return input3(name, _WIDTH)

    def layer(
        self, class_name: str, name: str, *calls: Sequence[tuple[str, int]], **config: object
    ) -> Config:
        """Return a layer that is called with each of these lists of tensors."""
        result = layer3(class_name, name)
        return {
            **result,
            "config": {**result["config"], **config},
            "inbound_nodes": self._nodes(calls),
        }

    def model(
        self, name: str, layers: Sequence[Config], *calls: Sequence[tuple[str, int]]
    ) -> Config:
        """Return a functional model, called with each of these lists of tensors."""
        return {**self.root(*layers, name=name), "name": name, "inbound_nodes": self._nodes(calls)}

    def _nodes(self, calls: Sequence[Sequence[tuple[str, int]]]) -> list[Config]:
        return [
            {
                "args": [
                    _tensor(*tensors[0])
                    if len(tensors) == 1
                    else [_tensor(*source) for source in tensors]
                ],
                "kwargs": {},
            }
            for tensors in calls
        ]

    def root(self, *layers: Config, name: str = "model") -> Config:
        """Return a whole model."""
        return {
            "module": "keras.src.models.functional",
            "class_name": "Functional",
            "config": _graph(name, layers),
            "registered_name": "Functional",
            "build_config": {"input_shape": None},
        }

    def sequential(self, layers: Sequence[Config], name: str = "model") -> Config:
        """Return a whole model that is a chain."""
        own = {"trainable": True, "dtype": policy("float32"), "layers": list(layers)}
        return instance3("Sequential", "keras", name=name, **own)

    def policy(self, name: str) -> object:
        """Return a policy."""
        return policy(name)

    def operation(self, name: str, source: tuple[str, int]) -> Config:
        """Return an operation that is called with one tensor."""
        return layer3("Add", name, _tensor(*source), 1.0, module="keras.src.ops.numpy")


def _tensor(source: str, call: int) -> Config:
    made = tensor(source)
    made["config"]["keras_history"][1] = call
    return made


def bare(layer: Config) -> Config:
    """Return a layer without what a functional model says of it, or a model without its writer."""
    beside = {"name", "inbound_nodes", "keras_version", "backend"}
    return {key: value for key, value in layer.items() if key not in beside}


def _graph(name: str, layers: Sequence[Config]) -> Config:
    inputs = [[layer["name"], 0, 0] for layer in layers if layer["class_name"] == "InputLayer"]
    last = layers[-1]
    return {
        "name": name,
        "trainable": True,
        "layers": list(layers),
        "input_layers": inputs,
        "output_layers": [[last["name"], max(len(last["inbound_nodes"]) - 1, 0), 0]],
    }


Library = Keras2 | Keras3


def _in_turn(
    write: Library, names: Sequence[str], layer: Callable[[str, tuple[str, int]], Config]
) -> Config:
    """Return a model whose layers have these names; each is called with the output before it."""
    pairs = itertools.pairwise(["x", *names])
    return write.root(write.input(), *(layer(name, (before, 0)) for before, name in pairs))


def _numbered(kind: str, count: int) -> list[str]:
    return [f"{kind}{number}" for number in range(count)]


def _denses(write: Library, names: Sequence[str]) -> Config:
    return _in_turn(
        write, names, lambda name, source: write.layer("Dense", name, [source], units=2)
    )


def _chain(write: Library, count: int) -> Config:
    return _denses(write, _numbered("d", count))


def _single(write: Library, class_name: str = "Dense", /, **config: object) -> Config:
    """Return a model of one layer."""
    return write.root(write.input(), write.layer(class_name, "d", [("x", 0)], **config))


def _reversed_chain(write: Library, count: int) -> Config:
    """Return a chain in the wrong order: each layer waits for a later one."""
    model = _chain(write, count)
    model["config"]["layers"][1:] = model["config"]["layers"][:0:-1]
    model["config"]["output_layers"] = [[f"d{count - 1}", 0, 0]]
    return model


def _sequential(write: Library, count: int) -> Config:
    return write.sequential(
        [bare(write.layer("Dense", f"d{number}", units=2)) for number in range(count)]
    )


def _wide(write: Library, count: int) -> Config:
    names = _numbered("d", count)
    return write.root(
        write.input(),
        *(write.layer("Dense", name, [("x", 0)], units=2) for name in names),
        write.layer("Add", "sum", [(name, 0) for name in names]),
    )


def _inputs(write: Library, count: int) -> Config:
    names = [f"x{number}" for number in range(count)]
    model = write.root(
        *map(write.input, names),
        *(write.layer("Dense", f"d_{name}", [(name, 0)], units=2) for name in names),
    )
    model["config"]["output_layers"] = [[f"d_{name}", 0, 0] for name in names]
    return model


def _diamonds(write: Library, count: int) -> Config:
    layers = [write.input()]
    before = "x"
    for number in range(count // 3):
        left, right, both = f"l{number}", f"r{number}", f"a{number}"
        layers += (
            write.layer("Dense", left, [(before, 0)], units=2),
            write.layer("Dense", right, [(before, 0)], units=2),
            write.layer("Add", both, [(left, 0), (right, 0)]),
        )
        before = both
    return write.root(*layers)


def _masked(write: Library, count: int) -> Config:
    """Return joins of masked tensors, and of masked and unmasked steps."""
    layers = [
        write.input(),
        write.layer("Embedding", "e", [("x", 0)], input_dim=9, output_dim=2, mask_zero=True),
    ]
    before = "e"
    for number in range(count // 4):
        left, right, both, after = (f"{kind}{number}" for kind in "lrat")
        layers += (
            write.layer("LSTM", left, [(before, 0)], units=2, return_sequences=True),
            write.layer("Dropout", right, [(before, 0)], rate=0.1),
            write.layer("Add", both, [(left, 0), (right, 0)]),
            write.layer("Concatenate", after, [(both, 0), (before, 0)], axis=1),
        )
        before = after
    return write.root(*layers)


def _masked_models(write: Library, count: int) -> Config:
    """Return models in models, called twice, each with a mask of its own that joins all others."""
    levels = count.bit_length()
    layers: list[Config] = []
    for level in range(levels):
        embedding = write.layer("Embedding", "e", [("x", 0)], input_dim=9, output_dim=2)
        embedding["config"]["mask_zero"] = True
        inner = f"m{level}"
        layers = [
            write.input(),
            embedding,
            *([write.model(inner, layers, [("x", 0)], [("x", 0)])] if layers else ()),
            write.layer("Add", "a", [("e", 0), *([(inner, 0), (inner, 1)] if layers else ())]),
        ]
    return write.root(*layers)


def _operations(write: Library, count: int) -> Config:
    return _in_turn(write, _numbered("o", count), write.operation)


def _activations(write: Library, count: int) -> Config:
    return _in_turn(
        write,
        _numbered("s", count),
        lambda name, source: write.layer("Activation", name, [source], activation="softmax"),
    )


def _shared(write: Library, count: int) -> Config:
    """Return a layer that is called again and again with its own output."""
    return write.root(
        write.input(),
        write.layer(
            "Dense", "d", [("x", 0)], *([("d", number)] for number in range(count - 1)), units=2
        ),
    )


def _shared_model(write: Library, count: int) -> Config:
    """Return a model that is called again and again with its own output."""
    inner = [write.input("y"), write.layer("Dense", "d", [("y", 0)], units=2)]
    return write.root(
        write.input(),
        write.model("m", inner, [("x", 0)], *([("m", number)] for number in range(count - 1))),
    )


def _models(write: Library, count: int) -> Config:
    """Return models beside each other."""
    layers = [write.input()]
    before = "x"
    for number in range(count // 4):
        name = f"m{number}"
        inner = [
            write.input(f"y{number}"),
            write.layer("Dense", f"d{number}", [(f"y{number}", 0)], units=2),
            write.operation(f"o{number}", (f"d{number}", 0)),
        ]
        layers.append(write.model(name, inner, [(before, 0)]))
        before = name
    return write.root(*layers)


def _sequential_models(write: Library, count: int) -> Config:
    """Return chains beside each other."""
    layers = [write.input()]
    before = "x"
    for number in range(count // 4):
        dense = write.layer("Dense", f"d{number}", units=2)
        inner = write.sequential([bare(dense)], name=f"s{number}")
        called = write.layer("Dense", "any", [(before, 0)])["inbound_nodes"]
        layers.append({**bare(inner), "name": f"s{number}", "inbound_nodes": called})
        before = f"s{number}"
    return write.root(*layers)


def _nest(write: Library, count: int, calls: int = 1) -> Config:
    layers = [
        write.input("x"),
        write.layer("Dense", "d", [("x", 0)], units=2),
        write.operation("o", ("d", 0)),
    ]
    for number in range(count):
        name = f"m{number}"
        layers = [
            write.input("x"),
            write.model(name, layers, [("x", 0)], *([(name, call)] for call in range(calls - 1))),
            write.operation("o", (name, calls - 1)),
        ]
    return write.root(*layers)


def _nest_called_twice(write: Library, count: int) -> Config:
    """Return a nest whose innermost layer is called 2 ** count times."""
    return _nest(write, count, 2)


def _nest_around_a_chain(write: Library, count: int) -> Config:
    layers = _chain(write, count)["config"]["layers"]
    for number in range(20):
        layers = [write.input("x"), write.model(f"m{number}", layers, [("x", 0)])]
    return write.root(*layers)


def _wrappers(write: Library, count: int) -> Config:
    layer = write.layer("Dense", "d", units=2)
    for number in range(count):
        layer = write.layer("TimeDistributed", f"t{number}", layer=bare(layer))
    return write.root(
        write.input(),
        {**layer, "inbound_nodes": write.layer("Dense", "d", [("x", 0)])["inbound_nodes"]},
    )


def _long_name(write: Library, count: int) -> Config:
    """Return 30 layers below a name of 100 characters for each unit of size."""
    inner = [write.input("y")]
    before = "y"
    for number in range(30):
        inner.append(write.layer("Lambda", f"d{number}", [(before, 0)], function="f"))
        before = f"d{number}"
    return write.root(write.input(), write.model("n" * 100 * count, inner, [("x", 0)]))


def _long_names(write: Library, count: int) -> Config:
    return _denses(write, [f"{number}" + "n" * 10 * count for number in range(30)])


def _objects(count: int) -> list[Config]:
    return [{} for _ in range(count)]


def _long_key(write: Library, count: int) -> Config:
    """Return objects below a key of 100 characters for each of them."""
    return _single(write, units=2, **{"k" * 100 * count: _objects(count)})


def _long_key_above_names(write: Library, count: int) -> Config:
    """Return the same with objects that name code."""
    named = [{"class_name": "Lambda", "config": {"function": "f"}} for _ in range(count)]
    return _single(write, units=2, **{"k" * 100 * count: named})


def _long_key_beside_layers(write: Library, count: int) -> Config:
    """Return the same beside the layers of a model."""
    model = _chain(write, count)
    model["k" * 100 * count] = _objects(count)
    return model


def _deep_config(write: Library, count: int) -> Config:
    value: Any = 1.0
    for _ in range(count):
        value = {"a": [value]}
    return _single(write, units=2, kernel_constraint=value)


def _values(write: Library, count: int) -> Config:
    return _single(write, "StringLookup", vocabulary=_numbered("w", count))


def _keys(write: Library, count: int) -> Config:
    return _single(write, units=2, **{f"k{number}": number for number in range(count)})


def _custom(write: Library, count: int) -> Config:
    """Return layers of classes that the library does not have."""
    return _in_turn(
        write,
        _numbered("c", count),
        lambda name, source: write.layer(f"Custom{name}", name, [source]),
    )


def _lambdas(write: Library, count: int) -> Config:
    """Return layers with a finding each."""
    function = ["4wEAAAA", None, None]
    return _in_turn(
        write,
        _numbered("c", count),
        lambda name, source: write.layer("Lambda", name, [source], function=function),
    )


def _policies(write: Library, count: int) -> Config:
    """Return neighbours with different policies."""
    kinds = itertools.cycle(("float32", "mixed_float16", "float64", "bfloat16"))

    def dense(name: str, source: tuple[str, int]) -> Config:
        return write.layer("Dense", name, [source], units=2, dtype=write.policy(next(kinds)))

    return _in_turn(write, _numbered("d", count), dense)


def _bidirectional(write: Library, count: int) -> Config:
    inner = bare(write.layer("LSTM", "l", units=2, return_sequences=True))
    return _in_turn(
        write,
        _numbered("b", count),
        lambda name, source: write.layer(
            "Bidirectional", name, [source], layer=inner, merge_mode="sum"
        ),
    )


def _same_names(write: Library, count: int) -> Config:
    """Return a chain whose layers have one name."""
    return write.sequential([bare(write.layer("Dense", "d", units=2))] * count)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Models of one shape."""

    name: str
    make: Callable[[Library, int], Config]
    sizes: tuple[int, ...] = (24, 48, 96)
    """For which growth is measured; each about twice the one before."""

    is_deep: bool = False
    """Whether the size is a depth, which other limits bound."""

    limit: str | None = None
    """The limit that ends some conversions of it."""


SHAPES: Final = (
    Shape(name="chain", make=_chain),
    Shape(name="reversed chain", make=_reversed_chain),
    Shape(name="sequential", make=_sequential),
    Shape(name="wide", make=_wide),
    Shape(name="inputs and outputs", make=_inputs),
    Shape(name="diamonds", make=_diamonds),
    Shape(name="masked diamonds", make=_masked, sizes=(16, 32, 64)),
    Shape(name="masked models", make=_masked_models, sizes=(32, 64, 128)),
    Shape(name="operations", make=_operations),
    Shape(name="activations", make=_activations),
    Shape(name="shared layer", make=_shared),
    Shape(name="shared model", make=_shared_model),
    Shape(name="models", make=_models),
    Shape(name="sequential models", make=_sequential_models),
    Shape(name="nest", make=_nest, sizes=(8, 16, 32), is_deep=True),
    Shape(
        name="nest called twice",
        make=_nest_called_twice,
        sizes=(8, 16, 32),
        is_deep=True,
        limit="layer-calls",
    ),
    Shape(name="nest around a chain", make=_nest_around_a_chain),
    Shape(name="wrappers", make=_wrappers, sizes=(8, 16, 32), is_deep=True),
    Shape(name="long name", make=_long_name),
    Shape(name="long names", make=_long_names),
    Shape(name="long key", make=_long_key),
    Shape(name="long key above names", make=_long_key_above_names),
    Shape(name="long key beside layers", make=_long_key_beside_layers),
    Shape(name="deep config", make=_deep_config, sizes=(20, 40, 80), is_deep=True),
    Shape(name="values", make=_values),
    Shape(name="keys", make=_keys),
    Shape(name="custom classes", make=_custom),
    Shape(name="lambdas", make=_lambdas),
    Shape(name="policies", make=_policies),
    Shape(name="bidirectional", make=_bidirectional),
    Shape(name="same names", make=_same_names),
)


def _write_h5(path: Path, config: Config) -> Path:
    return h5_model(path, config, weights=False, keras_version=config.get("keras_version", "3.6.0"))


def _write_json(path: Path, config: Config) -> Path:
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


def _write_archive(path: Path, config: Config) -> Path:
    return keras_zip(path, keras_members(config))


def _write_tfjs(path: Path, config: Config) -> Path:
    model = {
        "format": "layers-model",
        "generatedBy": "keras v2.15.0",
        "convertedBy": "TensorFlow.js Converter v4.22.0",
        "modelTopology": {
            "keras_version": "2.15.0",
            "backend": "tensorflow",
            "model_config": config,
        },
        "weightsManifest": [],
    }
    path.write_text(json.dumps(model), encoding="utf-8")
    return path


@dataclass(frozen=True, kw_only=True, slots=True)
class Container:
    """A file format, and how a model is written in it."""

    name: str
    suffix: str
    library: Library
    write: Callable[[Path, Config], Path]


CONTAINERS: Final = (
    Container(name="keras2.h5", suffix=".h5", library=Keras2(), write=_write_h5),
    Container(name="keras3.h5", suffix=".h5", library=Keras3(), write=_write_h5),
    Container(name="keras", suffix=".keras", library=Keras3(), write=_write_archive),
    Container(name="keras2.json", suffix=".json", library=Keras2(), write=_write_json),
    Container(name="keras3.json", suffix=".json", library=Keras3(), write=_write_json),
    Container(name="yaml", suffix=".yaml", library=Keras2(), write=_write_json),  # JSON is YAML
    Container(name="tfjs", suffix=".json", library=Keras2(), write=_write_tfjs),
)
