"""
Sound configs with one hostile or odd thing in each: in every place where a loader looks something
up, calls it, or takes text for a path.

Hostile is what the guard has to refuse; what is odd may be harmless, and a loader decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import known_arguments
from tests.fuzz import hostile_names as names
from tests.fuzz import sound_configs
from tests.helpers.small_models import instance

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from tests.fuzz.hostile_names import Paths
    from tests.fuzz.sound_configs import Config

SOUND: Final = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where something is put: the entry of a layer, which is changed."""

    rng: Random
    generation: int
    entry: Config
    paths: Paths

    @property
    def config(self) -> Config:
        """The layer's own config."""
        result: Config = self.entry["config"]
        return result

    def thing(self, class_name: str, config: Config, module: str = "keras.initializers") -> Config:
        """Return an object."""
        return sound_configs.thing(self.generation, class_name, config, module=module)

    def become(self, class_name: str, config: Config) -> None:
        """Make the layer another, with the same name."""
        self.entry["class_name"] = class_name
        self.entry["config"] = {
            "name": self.config.get("name", "x"),
            "trainable": True,
            "dtype": sound_configs.DTYPES.get(class_name, "float32"),
            **config,
        }

    def given(self) -> Config:
        """Return what functions that write, read and copy take."""
        return {
            "filename": self.paths.canary,
            "contents": self.paths.marker,
            "path": self.paths.marker,
            "name": "x",
        }

    def called(self, *values: Any, **options: Any) -> None:
        """Call the layer with constants, beside the tensor that it had or alone."""
        nodes = self.entry.get("inbound_nodes")
        constants = [["_CONSTANT_VALUE", -1, value, options] for value in values]
        if isinstance(nodes, list):
            before = (
                nodes[0] if nodes and self.rng.random() < 0.5 and isinstance(nodes[0], list) else []
            )
            self.entry["inbound_nodes"] = [[*before, *constants]]


def _function(place: Place, name: str) -> Config:
    module = place.rng.choice((*names.MODULES, "builtins", "keras.activations", None))
    return {
        "module": module,
        "class_name": "function",
        "config": name,
        "registered_name": place.rng.choice((name, "function", None)),
    }


def _class_name(place: Place) -> None:
    place.entry["class_name"] = place.rng.choice(names.classes())


def _module(place: Place) -> None:
    place.entry["module"] = place.rng.choice([name for name in names.MODULES if name])
    place.entry.setdefault("registered_name", None)


def _registered_name(place: Place) -> None:
    taken = {place.entry["class_name"]}
    place.entry.setdefault("module", "keras.layers")
    place.entry["registered_name"] = place.rng.choice(
        [name for name in names.classes() if name not in taken]
    )


_NAMING: Final = (
    "activation",
    "kernel_initializer",
    "recurrent_activation",
    "bias_constraint",
    "activity_regularizer",
    "embeddings_initializer",
)


def _named(place: Place) -> None:
    place.config[place.rng.choice(_NAMING)] = place.rng.choice(names.functions())


def _named_function(place: Place) -> None:
    place.config[place.rng.choice(_NAMING)] = _function(place, place.rng.choice(names.functions()))


def _named_object(place: Place) -> None:
    place.config[place.rng.choice(_NAMING)] = place.thing(
        place.rng.choice(names.classes()), place.given()
    )


def _op_lambda(place: Place) -> None:
    place.become(
        place.rng.choice(("TFOpLambda", "SlicingOpLambda")),
        {"function": place.rng.choice(names.functions())},
    )
    place.called(place.paths.marker, **place.given())


def _class_method(place: Place) -> None:
    owner, method = place.rng.choice(names.methods())
    place.become("ClassMethod", {"cls_symbol": owner, "method_name": method})
    place.called(
        place.rng.choice(
            (place.paths.canary, place.paths.marker, names.model_in_text(place.paths))
        ),
        **place.given(),
    )


def _attribute(place: Place) -> None:
    place.become(
        place.rng.choice(("InstanceMethod", "InstanceProperty")),
        {"attr_name": place.rng.choice(names.functions())},
    )


def _constants(place: Place) -> None:
    place.become("TFOpLambda", {"function": "math.add"})
    place.entry["inbound_nodes"] = [
        ["_CONSTANT_VALUE", -1, place.paths.canary, {"y": names.model_in_text(place.paths)}]
    ]


def _node_def(place: Place) -> None:
    op = place.rng.choice(names.ops())
    node: Any = {
        "name": "x",
        "op": op,
        "input": ["x"],
        "attr": {"filename": {"s": place.paths.canary}},
    }
    called = {"name": "x", "op": "PartitionedCall", "attr": {"f": {"func": {"name": "evil"}}}}
    place.become(
        "TensorFlowOpLayer",
        {
            "node_def": place.rng.choice((node, node, called, "CgF4EghSZWFkRmlsZQ==", None)),
            "constants": {"0": place.paths.canary},
        },
    )


def _lambda(place: Place) -> None:
    code = ["4wEAAAAAAAAA", None, None]
    spelled: tuple[Config, ...] = (
        {"function": code, "function_type": "lambda"},
        {"function": instance("__lambda__", code=code[0], defaults=None, closure=None)},
        {"function": "system", "function_type": "function", "module": "os"},
        {
            "function": place.rng.choice(names.functions()),
            "function_type": "function",
            "module": "__main__",
        },
    )
    place.become("Lambda", place.rng.choice(spelled))


def _byte_code(place: Place) -> None:
    place.config[place.rng.choice(_NAMING)] = instance(
        "__lambda__", code="4wEAAAA=", defaults=None, closure=None
    )


def _type_spec(place: Place) -> None:
    name, module = place.rng.choice(names.classes()), place.rng.choice(names.MODULES)
    kept: Config = {
        "class_name": "__typespec__",
        "spec_name": name,
        "module": module,
        "config": [[4], "float32"],
        "registered_name": None,
    }
    place.config["type_spec"] = place.rng.choice(
        (kept, {"class_name": "TypeSpec", "type_spec": name, "serialized": [[4], "float32"]})
    )


def _vocabulary(place: Place) -> None:
    place.become(
        place.rng.choice(("StringLookup", "IntegerLookup", "TextVectorization")),
        {"vocabulary": place.paths.any(place.rng)},
    )


def _opening(place: Place) -> None:
    name, key = place.rng.choice(
        (("TFSMLayer", "filepath"), ("TorchModuleWrapper", "module"), ("KerasLayer", "handle"))
    )
    place.become(name, {key: place.paths.any(place.rng)})


def _argument(place: Place) -> None:
    if not known_arguments.is_known("layers", place.entry["class_name"]):
        place.become("Dense", {"units": 4})
    value: Any = place.rng.choice(names.functions())
    place.config[place.rng.choice(("hook", "custom_objects", "loader", "fn_name"))] = (
        place.rng.choice((value, [value], {"a": [value]}))
    )


def _dtype(place: Place) -> None:
    place.config["dtype"] = place.thing(
        place.rng.choice(names.classes()), {"name": "float32"}, "keras"
    )


def _build_config(place: Place) -> None:
    place.entry["build_config"] = {
        "input_shape": place.thing(place.rng.choice(names.classes()), place.given())
    }


def _call_argument(place: Place) -> None:
    value = place.rng.choice(
        (
            place.thing(place.rng.choice(names.classes()), place.given()),
            _function(place, place.rng.choice(names.functions())),
        )
    )
    place.entry["inbound_nodes"] = (
        [[["in", 0, 0, {"mask": value}]]]
        if place.generation == 2
        else [{"args": [value], "kwargs": {"mask": value}}]
    )


def _shared(place: Place) -> None:
    place.entry["shared_object_id"] = 1
    place.config["kernel_initializer"] = {
        **place.thing(place.rng.choice(names.classes()), {}),
        "shared_object_id": 1,
    }


def _layer_name(place: Place) -> None:
    place.config["name"] = place.rng.choice(
        (
            f"../{names.MARKER}",
            f"a/../../{names.MARKER}",
            place.paths.marker,
            "..\\..\\x",
            "C:\\x",
            f"file://{place.paths.marker}",
        )
    )


_NAMES: Final = (
    *(_class_name, _module, _registered_name, _named, _named_function, _named_object),
    *(_op_lambda, _class_method),
)
_VALUES: Final = (
    *(_lambda, _byte_code, _type_spec, _vocabulary, _opening, _argument, _dtype),
    *(_build_config, _call_argument, _shared, _layer_name),
)
HOSTILE: Final[dict[int, tuple[Callable[[Place], None], ...]]] = {
    2: (*_NAMES, _attribute, _constants, _node_def, *_VALUES),
    3: (*_NAMES, _node_def, *_VALUES),
}
"""By generation, what puts something that the guard has to refuse into an entry."""


def _any_text(place: Place) -> None:
    """
    Put a path, or a name of a class or function that is allowed elsewhere, in an argument that a
    release writes.
    """
    keys = [
        key
        for key in place.config
        if key not in {"name", "layers", "layer", "input_layers", "output_layers"}
    ] or ["dtype"]
    value: Any = place.rng.choice(
        (
            place.paths.canary,
            place.paths.marker,
            "Lambda",
            "Adam",
            "deserialize",
            "get",
            "serialize",
            "softmax",
            "keras",
            "int8",
        )
    )
    kept = (
        [value],
        {"value": value},
        place.thing("__bytes__", {"value": value}),
        place.thing("__numpy__", {"value": value, "dtype": "string"}),
        value,
        value,
    )
    place.config[place.rng.choice(keys)] = place.rng.choice(kept)


def _pure_call(place: Place) -> None:
    place.become("TFOpLambda", {"function": place.rng.choice(names.pure_functions())})
    key = place.rng.choice(
        (
            "name",
            "fn",
            "function",
            "filename",
            "output_stream",
            "message",
            "data",
            "dtype",
            "x",
            "encoding",
            "method",
            "device",
        )
    )
    place.called(
        place.paths.canary,
        **{
            key: place.rng.choice(
                (
                    place.paths.marker,
                    place.paths.canary,
                    ["in", 0, 0],
                    names.model_in_text(place.paths),
                )
            )
        },
    )


def _other_class(place: Place) -> None:
    """Put a class of another kind, or of another module of Keras', where one is expected."""
    classes = (
        *sound_configs.layer_classes(place.generation),
        "Sequential",
        "Functional",
        "Adam",
        "Zeros",
        "Policy",
        "MeanSquaredError",
        "__tensor__",
    )
    module = place.rng.choice(
        (
            "keras.layers",
            "keras.ops",
            "keras.src.backend",
            "keras.random",
            "keras.optimizers",
            "keras.src.quantizers",
            "keras.src.ops.numpy",
        )
    )
    held = place.thing(
        place.rng.choice(classes),
        {"config": place.paths.any(place.rng), "layers": [place.given()]},
        module,
    )
    place.config[
        place.rng.choice(
            (*_NAMING, "layer", "cell", "dtype", "axis", "vocabulary", "quantization_config")
        )
    ] = held


def _word_list(place: Place) -> None:
    lookup = place.rng.choice(("StringLookup", "IntegerLookup", "TextVectorization"))
    value: Any = place.paths.any(place.rng)
    key = place.rng.choice(
        ("vocabulary", "idf_weights", "standardize", "split", "vocabulary_dtype", "encoding")
    )
    kept: Any = place.rng.choice(
        (
            [value],
            [[value]],
            {"0": value},
            place.thing("__bytes__", {"value": value}),
            place.thing("__tensor__", {"value": value, "dtype": "string"}),
        )
    )
    place.become(lookup, {key: kept})


def _pure_node(place: Place) -> None:
    op = place.rng.choice(
        (
            "Identity",
            "HashTableV2",
            "VarHandleOp",
            "RegexReplace",
            "ParseTensor",
            "DecodeRaw",
            "StringSplit",
            "Print",
            "PrintV2",
            "AsString",
        )
    )
    attributes = {
        "container": {"s": place.paths.marker},
        "shared_name": {"s": place.paths.canary},
        "T": {"type": "DT_FLOAT"},
        "output_stream": {"s": "stderr"},
    }
    place.become(
        "TensorFlowOpLayer",
        {
            "node_def": {
                "name": "x",
                "op": op,
                "input": ["in"],
                "attr": attributes,
                "device": place.paths.marker,
            },
            "constants": {},
        },
    )


ODD: Final[tuple[Callable[[Place], None], ...]] = (
    _any_text,
    _any_text,
    _pure_call,
    _other_class,
    _word_list,
    _pure_node,
)
"""What may be harmless, by whatever a loader makes of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """A model's config."""

    generation: int
    config: Config
    hostile: str
    """What was put into it that the guard has to refuse; empty where nothing was."""


def draw(rng: Random, paths: Paths, *, hostile: bool, odd: int = 0) -> Drawn:
    """
    Return a model's config with something hostile in one of its layers, or with odd things, or
    sound.
    """
    generation = rng.choice((2, 3))
    config = sound_configs.model(rng, generation)
    for put in rng.choices(ODD, k=odd):
        put(Place(rng=rng, generation=generation, entry=rng.choice(entries(config)), paths=paths))
    put = rng.choice(HOSTILE[generation])
    if hostile:
        put(Place(rng=rng, generation=generation, entry=rng.choice(entries(config)), paths=paths))
    return Drawn(
        generation=generation, config=config, hostile=put.__name__.strip("_") if hostile else SOUND
    )


def entries(config: Config) -> list[Config]:
    """Return the entries of all layers but inputs, those in wrappers and nested models too."""
    actual: list[Config] = []
    pending: list[Any] = [config["config"].get("layers")]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += item
        elif isinstance(item, dict) and isinstance(item.get("config"), dict):
            if item.get("class_name") != "InputLayer":
                actual.append(item)
            pending += [item["config"].get("layers"), item["config"].get("layer")]
    return actual
