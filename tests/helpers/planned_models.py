"""Small functional models, and the plans for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from policytool.formats.document import Document, Layout, Tensor, Writer
from policytool.migration import planning
from policytool.migration.plan import apply_edits
from policytool.migration.planning.options import Options, assignment
from policytool.model import reading

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.migration.plan import Plan
    from policytool.model.model import Model

Config = dict[str, Any]


def layer(
    class_name: str,
    name: str,
    dtype: object = "float32",
    *,
    inbound: Sequence[str] = (),
    **config: object,
) -> Config:
    """
    Return the entry of a layer in a functional model of Keras 2, fed by the layers ``inbound``.
    """
    values: Config = {"name": name, "trainable": True, "dtype": dtype, **config}
    return {
        "class_name": class_name,
        "config": values,
        "name": name,
        "inbound_nodes": [[[parent, 0, 0, {}] for parent in inbound]] if inbound else [],
    }


def dense(
    name: str, dtype: object = "float32", *, inbound: Sequence[str] = (), **config: object
) -> Config:
    """Return the entry of a Dense."""
    return layer(
        "Dense",
        name,
        dtype,
        inbound=inbound,
        units=2,
        kernel_initializer={"class_name": "GlorotUniform", "config": {}},
        **config,
    )


def source(name: str = "x", dtype: str = "float32") -> Config:
    """Return the entry of an input layer."""
    return {
        "class_name": "InputLayer",
        "config": {"batch_input_shape": [None, 2], "dtype": dtype, "name": name},
        "name": name,
        "inbound_nodes": [],
    }


def functional(
    *layers: Config, outputs: Sequence[str], name: str = "net", inputs: Sequence[str] = ("x",)
) -> Config:
    """Return the config of a functional model."""
    config = {
        "name": name,
        "layers": list(layers),
        "input_layers": [[input_value, 0, 0] for input_value in inputs],
        "output_layers": [[output, 0, 0] for output in outputs],
    }
    return {"class_name": "Functional", "config": config}


def chain(*layers: Config, name: str = "net") -> Config:
    """Return a functional model whose layers follow each other, after an input."""
    for before, after in zip((source(), *layers), layers, strict=False):
        after["inbound_nodes"] = [[[before["name"], 0, 0, {}]]]
    return functional(source(), *layers, outputs=[layers[-1]["name"]], name=name)


def tensor3(name: str, dtype: str = "float32") -> Config:
    """Return a tensor as Keras 3 writes it in a call."""
    config = {"shape": [None, 2], "dtype": dtype, "keras_history": [name, 0, 0]}
    return {"class_name": "__keras_tensor__", "config": config}


def policy3(name: str) -> Config:
    """Return a policy as Keras 3 writes it."""
    policy = {"class_name": "DTypePolicy", "config": {"name": name}}
    return {"module": "keras", **policy, "registered_name": None}


def called3(entry: Config, *tensors: Config) -> Config:
    """Return a layer or operation of Keras 3 that is called with one tensor, or with a list."""
    argument = list(tensors) if len(tensors) > 1 else tensors[0]
    call = {"args": [argument], "kwargs": {}}
    return {"module": "keras.layers", **entry, "inbound_nodes": [call]}


def operation3(class_name: str, name: str, *tensors: Config, **config: object) -> Config:
    """Return an operation of Keras 3."""
    entry = {"class_name": class_name, "config": config, "registered_name": class_name}
    return called3({"module": "keras.src.ops.core", **entry, "name": name}, *tensors)


def keras3(*layers: Config, keras: str = "3.15.0") -> Document:
    """Return a functional model of Keras 3 with an input, and the output ``out``."""
    first = source()
    first["config"]["batch_shape"] = first["config"].pop("batch_input_shape")
    model = functional(first, *layers, outputs=["out"])
    return document({**model, "module": "keras.src.models.functional"}, keras=keras)


def document(
    config: Config,
    *,
    training: Config | None = None,
    tensors: Mapping[str, str] | None = None,
    keras: str = "2.5.0",
) -> Document:
    """Return a document in HDF5; ``tensors`` maps stored paths to dtypes."""
    parts = {"model_config": config} | ({"training_config": training} if training else {})
    stored = tuple(
        Tensor(path=tuple(path.split("/")), shape=(2, 2), dtype=dtype)
        for path, dtype in (tensors or {}).items()
    )
    return Document(
        path="model.h5",
        format="h5",
        parts=parts,
        config_part="model_config",
        training_part="training_config" if training else None,
        layout=Layout.LEGACY_H5,
        tensors=stored if tensors is not None else None,
        writer=Writer(keras=keras),
    )


def plan(found: Document | Config, to: str | None = None, *sets: str, **options: Any) -> Plan:
    """Return the plan for a document, or for a config in one."""
    asked = Options(to=to, assignments=tuple(assignment(text) for text in sets), **options)
    return planning.plan(
        reading.load_model(found if isinstance(found, Document) else document(found)), asked
    )


def after(found: Document | Config, to: str | None = None, *sets: str, **options: Any) -> Model:
    """Return the model as it is once the plan is carried out."""
    held = found if isinstance(found, Document) else document(found)
    migration_plan = plan(held, to, *sets, **options)
    assert not migration_plan.refusals, migration_plan.refusals
    return reading.load_model(apply_edits(held, migration_plan.edits, migration_plan.casts)).model


def policies(model: Model) -> dict[str, str | None]:
    """Return each layer's policy by its name."""
    return {layer.name: layer.policy for layer in model.layers[1:]}
