"""
Try what a check does with devices under a real TensorFlow: ``python devicing.py TASK ARGUMENTS
RESULT``.

ARGUMENTS is JSON, and RESULT gets what the function that TASK names returns, as JSON. Each task has
a process of its own, because devices are set up once.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, Final

RUNTIME: Final = Path(__file__).parents[2] / "policytool" / "runtime"
LIMIT: Final = 1500
"""Rows of a square matrix whose product takes a good part of a second."""


def runtime(name: str) -> Any:
    """Return a module of the child's package, under the name that it has there."""
    if "policytool_runtime" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "policytool_runtime", RUNTIME / "__init__.py", submodule_search_locations=[str(RUNTIME)]
        )
        assert spec is not None
        assert spec.loader is not None
        sys.modules["policytool_runtime"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["policytool_runtime"])
    return import_module(f"policytool_runtime.{name}")


def opened(family: str, **wanted: Any) -> Any:
    """Return a library with its devices set up."""
    library = runtime("library").Library(family)
    runtime("devices").configure(library.tf, wanted)
    return library


def refusal(work: Any) -> list[str]:
    """Return the code and the sentence that something is refused with."""
    try:
        work()
    except runtime("library").Refused as error:
        return [error.code, str(error)]
    return []


def logical(count: int) -> dict[str, Any]:
    """
    Divide the CPU, and compute on all of its parts at once, with Keras models whose variables lie
    there.
    """
    library = opened("keras3", logical=count)
    tf, devices = library.tf, runtime("devices")

    def prepare(device: str) -> Any:
        with tf.device(device):
            model = library.keras.Sequential(
                [
                    library.keras.Input((LIMIT,)),
                    library.keras.layers.Dense(LIMIT, use_bias=False, activation="tanh"),
                ]
            )
            again = tf.function(
                lambda x, n: tf.while_loop(
                    lambda i, _: i < n, lambda i, y: (i + 1, model(y)), [0, x]
                )[1]
            )
            again(tf.ones((LIMIT, LIMIT)), tf.constant(1))
        return model, again

    def measure(device: str, prepared: Any) -> dict[str, Any]:
        model, again = prepared
        start = time.time()
        with tf.device(device):
            result = again(tf.ones((LIMIT, LIMIT)), tf.constant(12))
            result[0, 0].numpy()
        end = time.time()
        timed = runtime("devices").time_calls(
            library, tf.function(model), tf.ones((5, LIMIT)), device, 3
        )
        return {
            "variables": [variable.value.device for variable in model.variables],
            "made": result.device,
            "start": start,
            "end": end,
            "timed": timed,
        }

    def fail(device: str, _: Any) -> None:
        if device != names[0]:
            raise ValueError(device)
        time.sleep(0.2)
        ended.append(device)

    names: list[str] = devices.choose_devices(tf, "all")
    ended: list[str] = []
    return {
        "listed": devices.list_devices(tf),
        "all": names,
        "chosen": {
            wanted: devices.choose_devices(tf, wanted)
            for wanted in ("auto", "cpu", "cpu:1", "CPU:0")
        },
        "none": refusal(lambda: devices.choose_devices(tf, "gpu:0")),
        "again": refusal(lambda: devices.configure(tf, {"logical": count})),
        "other": refusal(lambda: devices.configure(tf, {"logical": count + 1})),
        "ran": runtime("devices").side_by_side(names, prepare, measure),
        "failed": refusal(
            lambda: runtime("devices").side_by_side(names, lambda device: device, fail)
        ),
        "ended": ended,
        "soft": tf.config.get_soft_device_placement(),
        "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
    }


def timed(sizes: list[int]) -> list[Any]:
    """
    Time a function that holds two square matrices besides its input at its peak; then one that
    takes long.
    """
    library = opened("keras3", logical=2)
    tf, timing = library.tf, runtime("devices")

    def multiply(x: Any) -> Any:
        once = tf.matmul(x, x)
        return tf.reduce_sum(tf.nn.relu(tf.matmul(once, x)) * once)

    def slow(x: Any) -> Any:
        time.sleep(0.3)
        return x

    two = tf.function(multiply)
    actual = [
        timing.time_calls(library, two, tf.random.normal((size, size)), device, 5)
        for size in sizes
        for device in ("/device:CPU:0", "/device:CPU:1")
    ]
    start = time.time()
    return [
        *actual,
        timing.time_calls(library, slow, {"x": tf.ones((6, 2))}, "/device:CPU:0", 1000),
        time.time() - start,
    ]


def determined(_: None) -> dict[str, Any]:
    """Ask for determinism and for its end, and draw numbers without a seed of their own."""
    library = opened("keras2", deterministic=True)
    tf, config = library.tf, import_module("tensorflow.python.framework.config")
    first = config.is_op_determinism_enabled()
    layer = library.keras.layers.Dense(3)
    layer.build((None, 4))  # random ops have to be seeded now, those of initialisers too
    runtime("devices").configure(tf, {"deterministic": False})
    return {"first": first, "then": config.is_op_determinism_enabled()}


def lacking(tf: Any, concrete: Any, call: Any) -> dict[str, Any]:
    """
    Return the ops of a function without a kernel, and whether TensorFlow finds none for one of
    them.
    """
    result = runtime("op_placement").missing_kernels(
        tf, concrete.graph.get_operations(), "cpu", lambda name: f"at {name}"
    )
    try:
        call()
    except tf.errors.OpError as error:
        return {
            "reported": result,
            "is_missing": "No OpKernel" in str(error),
            "error": str(error)[:300],
        }
    return {"reported": result, "is_missing": False, "error": None}


def graphs(_: None) -> dict[str, Any]:
    """
    Try a max pooling in three dimensions, which the CPU does not do in float16, in every place of a
    graph.
    """
    library = opened("keras3")
    tf = library.tf

    def pooled(x: Any) -> Any:
        return tf.nn.max_pool3d(x, 1, 1, "SAME")

    inner = tf.function(pooled)
    compiled = tf.function(pooled, jit_compile=True)
    functions = {
        "called": lambda x, _: pooled(x),
        "dead": lambda x, _: (pooled(x), x + 1)[1],
        "untaken": lambda x, n: tf.cond(n > 0, lambda: pooled(x), lambda: x),
        "loop": lambda x, n: tf.while_loop(
            lambda i, _: i < n, lambda i, y: (i + 1, pooled(y)), [0, x]
        )[1],
        "function": lambda x, _: inner(x),
        "nested": lambda x, n: tf.cond(n > 0, lambda: x, lambda: inner(inner(x))),
        "case": lambda x, n: tf.switch_case(n, [lambda: x, lambda: pooled(x)]),
        "compiled": lambda x, _: compiled(x),
        "wide": lambda x, _: tf.cast(pooled(tf.cast(x, tf.float32)), x.dtype),
    }
    found = {}
    for name, function in functions.items():
        arguments = tf.ones((1, 2, 2, 2, 1), tf.float16), tf.constant(0)
        traced = tf.function(function)
        concrete = traced.get_concrete_function(*arguments)
        found[name] = lacking(
            tf, concrete, lambda concrete=concrete, arguments=arguments: concrete(*arguments)
        )
    return found


def texts(_: None) -> list[Any]:
    """
    Return which ops of a function that makes texts of numbers have no kernel for GPUs: a constant
    text is among them.
    """
    tf = opened("keras3").tf
    concrete = tf.function(
        lambda x: tf.strings.join([tf.strings.as_string(x), "a text"])
    ).get_concrete_function(tf.TensorSpec([2], tf.float32))
    operations = concrete.graph.get_operations()
    result: list[Any] = runtime("op_placement").missing_kernels(
        tf, operations, "gpu", {operation.name: operation.type for operation in operations}.get
    )
    return result


def registry(_: None) -> dict[str, Any]:
    """
    Ask about every stateless op in every float dtype, and let TensorFlow place it.

    The op's result is not used: it is placed, and never computed, so its arguments need not make
    sense.
    """
    library = opened("keras3")
    tf = library.tf
    kernels, definitions = (
        import_module(f"tensorflow.python.framework.{name}")
        for name in ("kernels", "op_def_registry")
    )
    names = sorted(
        {
            kernel.op
            for kernel in kernels.get_all_registered_kernels().kernel
            if not kernel.op.startswith("_")
        }
    )
    counts = {"both": 0, "neither": 0}
    differing = []
    for name in names:
        definition = definitions.get(name)
        if definition is None or definition.is_stateful or not hasattr(tf.raw_ops, name):
            continue
        for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
            traced = _op(tf, definition, dtype)
            if traced is None:
                continue
            concrete, arguments = traced
            answer = lacking(
                tf, concrete, lambda concrete=concrete, arguments=arguments: concrete(*arguments)
            )
            if bool(answer["reported"]) != answer["is_missing"] or (
                answer["error"] and not answer["is_missing"]
            ):
                differing.append([name, dtype.name, answer])
            counts["both" if answer["is_missing"] else "neither"] += 1
    return {"counts": counts, "differing": differing}


def _op(tf: Any, definition: Any, dtype: Any) -> Any:
    """
    Return a function in which an op stands that nothing needs, and arguments for it; None for an op
    that takes no such dtype or cannot be traced so.
    """
    types, given = {}, {}
    simple = {
        "int": 1,
        "bool": False,
        "float": 0.5,
        "shape": [1],
        "list(int)": [1, 1, 1, 1, 1] if "3D" in definition.name else [1, 1, 1, 1],
        "string": "x",
    }
    for attr in definition.attr:
        allowed = list(attr.allowed_values.list.type)
        if attr.type == "type":
            free = not allowed or dtype.as_datatype_enum in allowed
            types[attr.name] = dtype if free else tf.as_dtype(attr.default_value.type or allowed[0])
        elif not attr.HasField("default_value"):
            given[attr.name] = (
                attr.allowed_values.list.s[0].decode()
                if attr.allowed_values.list.s
                else simple.get(attr.type)
            )
    if (
        None in given.values()
        or dtype not in types.values()
        or any(
            argument.is_ref or argument.type_list_attr or argument.number_attr
            for argument in definition.input_arg
        )
    ):
        return None
    specs = [
        tf.as_dtype(argument.type) if argument.type else types[argument.type_attr]
        for argument in definition.input_arg
    ]
    if any(spec in (tf.resource, tf.variant) or spec.is_quantized for spec in specs):
        return None
    unsaid = {
        name: one
        for name, one in types.items()
        if name not in {arg.type_attr for arg in definition.input_arg}
    }

    def function(x: Any, *tensors: Any) -> Any:
        getattr(tf.raw_ops, definition.name)(
            **dict(zip([arg.name for arg in definition.input_arg], tensors, strict=True)),
            **given,
            **unsaid,
        )
        return x + 1

    try:
        concrete = tf.function(function, autograph=False).get_concrete_function(
            tf.TensorSpec([], tf.float32), *[tf.TensorSpec(None, spec) for spec in specs]
        )
    except (
        NotImplementedError,
        TypeError,
        ValueError,
    ):  # an op that is no more, or shapes and attributes that do not fit
        return None
    texts = {tf.string: "x", tf.bool: True}
    return concrete, [
        tf.constant(1.0),
        *(
            tf.constant(texts[spec]) if spec in texts else tf.cast(tf.constant(1), spec)
            for spec in specs
        ),
    ]


def models(arguments: list[Any]) -> list[Any]:
    """
    Load models of one family, and say of each which ops of its call have no kernel, and whether it
    runs.
    """
    family, paths = arguments
    library = opened(family)
    library.trust()
    tf, seeded, serving = library.tf, runtime("feeding.recipes"), runtime("model_calls")
    sys.path.insert(0, str(RUNTIME.parents[1] / "fixtures"))
    classes = import_module("writer.custom_classes").classes(
        import_module("writer.api").open_release(
            "tf_keras2.21" if family == "keras2" else "keras3.15"
        )
    )
    library.custom = {**classes, **{f"fixtures>{name}": value for name, value in classes.items()}}
    actual = []
    for path in paths:
        try:
            model = library.load(path, compiled=False, trust=True)
            structure = serving.input_structure(model, {}) if family == "keras2" else model.inputs
            flat = seeded.draw_inputs(
                library, model, seeded.input_slots(tf.nest.flatten(structure)), 1, 8
            )
            batch = tf.nest.pack_sequence_as(structure, flat)
            traced = tf.function(
                lambda inputs, model=model: serving.call(model, inputs), autograph=False
            )
            concrete = traced.get_concrete_function(batch)
        except Exception as error:  # noqa: BLE001  # what a library refuses to load or to trace is not asked about here
            actual.append({"path": path, "untraced": f"{type(error).__name__}: {error}"[:200]})
            continue
        actual.append(
            {
                "path": path,
                **lacking(tf, concrete, lambda traced=traced, batch=batch: traced(batch)),
            }
        )
    return actual


def pools(family: str) -> list[Any]:
    """
    Ask about layers of three dimensions under every policy; in float64 the op of MaxPooling3D does
    not exist, so that it cannot even be traced.
    """
    library = opened(family)
    tf, layers = library.tf, library.keras.layers
    actual = []
    for name in ("MaxPooling3D", "AveragePooling3D", "Conv3D"):
        for policy in (
            "float32",
            "float16",
            "bfloat16",
            "mixed_float16",
            "mixed_bfloat16",
            *(["float64"] if name != "MaxPooling3D" else []),
        ):
            layer = getattr(layers, name)(*([2, 1] if name == "Conv3D" else [2]), dtype=policy)
            batch = tf.ones((1, 4, 4, 4, 2))
            traced = tf.function(lambda x, layer=layer: layer(x))
            actual.append(
                [
                    name,
                    policy,
                    lacking(
                        tf,
                        traced.get_concrete_function(batch),
                        lambda traced=traced, batch=batch: traced(batch),
                    ),
                ]
            )
    return actual


def main() -> None:
    """Do one task."""
    task, arguments, result = sys.argv[1:]
    outcome = globals()[task](json.loads(arguments))
    Path(result).write_text(json.dumps(outcome), encoding="utf-8")


if __name__ == "__main__":
    main()
