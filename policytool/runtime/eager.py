"""
Keras 3 on JAX or torch, with the part of TensorFlow's interface that checks use.

Ops run when they are called, so a "traced" function is the function itself. Results of comparisons
are NumPy arrays. Placement, kernels and optimizations of graphs have no counterpart.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .tensors import dtype_name

if TYPE_CHECKING:
    from typing import Any, Callable, Sequence


_FULL = "highest"
"""The precision with which float32 is multiplied in float32."""

_DIFFERENTIATED = ("JVPTracer", "LinearizeTracer")
"""The classes of tensors that JAX differentiates."""


class TensorSpec(NamedTuple):
    """The shape and the dtype of a tensor."""

    shape: Any
    dtype: Any


class EagerFunction:
    """A function that looks like a traced one, and runs op by op."""

    def __init__(self, code: Callable[..., Any]) -> None:
        self._code = code

    def __call__(self, *arguments: Any) -> Any:
        """Run the function."""
        return self._code(*arguments)

    def get_concrete_function(self) -> EagerFunction:
        """Return the function, which needs no trace."""
        return self


class CompiledCall:
    """A model's call that JAX compiles for the shapes of the first inputs."""

    def __init__(self, call: Any, values: Sequence[Any]) -> None:
        self._call = call
        self._values = values
        self._compiled: Any = None

    def __call__(self, inputs: Any) -> Any:
        """Return the outputs of the model."""
        if self._compiled is None:
            self._compiled = self._call.lower(*self._values, inputs).compile()
        return self._compiled(*self._values, inputs)[0]

    def peak_memory(self) -> int | None:
        """Return the bytes that the compiler plans for results and what is between them."""
        planned = self._compiled.memory_analysis()
        if planned is None:  # a platform that does not tell
            return None
        return int(planned.temp_size_in_bytes + planned.output_size_in_bytes) or None


ARRAYS = SimpleNamespace(
    float32="float32",
    float64="float64",
    math=SimpleNamespace(is_finite=np.isfinite, count_nonzero=np.count_nonzero),
    nn=SimpleNamespace(l2_loss=lambda values: np.square(values).sum() / 2),
    cast=lambda value, dtype: np.asarray(value).astype(dtype),
    reduce_max=lambda values: np.max(values, initial=-np.inf),
    **{
        name: getattr(np, name)
        for name in (
            *("abs", "equal", "logical_and", "logical_not", "maximum", "not_equal"),
            *("ones_like", "size", "stack", "where", "zeros_like"),
        )
    },
)
"""The functions that reduce gradients, for arrays of NumPy."""


class EagerBackend:
    """The operations of a backend, under the names that they have in TensorFlow."""

    runs_op_by_op = True
    float32 = "float32"
    float64 = "float64"
    int64 = "int64"
    TensorSpec = TensorSpec
    arrays = ARRAYS
    stack = staticmethod(np.stack)  # of the results of comparisons, which are arrays
    zeros = staticmethod(np.zeros)
    errors = SimpleNamespace(
        OpError=RuntimeError,  # JAX's and torch's errors are subclasses
        ResourceExhaustedError=MemoryError,
        InvalidArgumentError=ValueError,
    )

    def __init__(self, name: str, keras: Any) -> None:
        self.name = name
        self.keras = keras
        self.module = importlib.import_module(name)
        self.__version__ = str(self.module.__version__)
        self.nest = SimpleNamespace(
            flatten=lambda nested, expand_composites=False: keras.tree.flatten(nested),  # noqa: ARG005  # as in TensorFlow
            map_structure=keras.tree.map_structure,
            pack_sequence_as=keras.tree.pack_sequence_as,
        )
        self.random = SimpleNamespace(set_seed=keras.utils.set_random_seed)
        self.is_tensor = keras.ops.is_tensor
        self.zeros_like = keras.ops.zeros_like
        self.reshape = keras.ops.reshape
        self.reduce_mean = keras.ops.mean
        self.where = keras.ops.where
        self.equal = keras.ops.equal

    def device(self, name: str) -> Any:
        """Return a context in which a device computes, without records for gradients."""
        stack = contextlib.ExitStack()
        is_torch = self.name == "torch"
        # torch copies parameters from "cpu" to "cpu:0", and Keras fails to load integer variables
        stack.enter_context(self.keras.device("cpu" if is_torch and name == "cpu:0" else name))
        if is_torch:
            stack.enter_context(self.module.no_grad())
        return stack

    def configure(self, logical: int | None) -> None:
        """
        Multiply float32 in float32, also on GPUs, and divide the CPU into several devices of JAX,
        for tests.
        """
        self.set_tf32(False)
        if self.name == "jax" and logical is not None:
            self.module.config.update("jax_num_cpu_devices", logical)

    def uses_tf32(self) -> bool:
        """Return whether matrices of float32 are multiplied in TF32."""
        return not self.matrix_precision.endswith(_FULL)

    def set_tf32(self, wanted: bool) -> None:  # noqa: FBT001  # a setting, as TensorFlow has it
        """Set whether GPUs multiply matrices of float32 in TF32."""
        if self.name == "torch":
            self.module.set_float32_matmul_precision("high" if wanted else _FULL)
            self.module.backends.cudnn.allow_tf32 = wanted
            return
        precision = "tensorfloat32" if wanted else _FULL
        self.module.config.update("jax_default_matmul_precision", precision)

    def peak_memory(self, call: Callable[[], None], device: str) -> int | None:
        """
        Return the peak number of bytes that a call needs in addition to those in use before it;
        None on CPUs, and on JAX, whose compiler counts it (:class:`CompiledCall`).
        """
        if self.name != "torch" or not device.startswith("gpu"):
            return None
        cuda, number = self.module.cuda, int(device.partition(":")[2])
        cuda.reset_peak_memory_stats(number)
        before = cuda.memory_allocated(number)
        call()
        return int(cuda.max_memory_allocated(number) - before) or None

    @property
    def matrix_precision(self) -> str:
        """The setting for products of float32 matrices, with its name."""
        if self.name == "torch":
            precision = self.module.get_float32_matmul_precision()
            return "float32_matmul_precision {}".format(precision)
        precision = self.module.config.jax_default_matmul_precision
        return "jax_default_matmul_precision {}".format(precision)

    def devices(self) -> list[tuple[str, str, dict[str, Any]]]:
        """
        Return the kind and the name of each device, CPUs first, and the model, the compute
        capability and the kernel libraries of GPUs.
        """
        if self.name == "torch":
            cuda = self.module.cuda
            gpus = [cuda.get_device_properties(number) for number in range(cuda.device_count())]
            cudnn = self.module.backends.cudnn.version()
            libraries = {"cuda": self.module.version.cuda, "cudnn": cudnn and str(cudnn)}
            facts = [
                {
                    "model": gpu.name,
                    "compute_capability": "{}.{}".format(gpu.major, gpu.minor),
                    **libraries,
                }
                for gpu in gpus
            ]
            return [("cpu", "cpu:0", {}), *_numbered("gpu", facts)]
        kinds = ["cpu", "gpu"] if self.module.default_backend() != "cpu" else ["cpu"]
        return [
            entry
            for kind in kinds
            for entry in _numbered(
                kind,
                [
                    {
                        "model": item.device_kind,
                        "compute_capability": getattr(item, "compute_capability", None),
                    }
                    for item in self.module.devices(kind)
                ],
            )
        ]

    def function(self, code: Callable[..., Any], **_: Any) -> EagerFunction:
        """Return a function that runs op by op."""
        return EagerFunction(code)

    def compiled(self, model: Any) -> Callable[[Any], Any]:
        """Return the call of a model as Keras predicts: compiled in JAX, op by op in torch."""
        if self.name != "jax":
            return functools.partial(model, training=False)
        values = [
            [variable.value for variable in variables]
            for variables in (model.trainable_variables, model.non_trainable_variables)
        ]
        call = self.module.jit(functools.partial(model.stateless_call, training=False))
        return CompiledCall(call, values)

    def without_effects(self, function: Callable[[], Any]) -> Any:
        """Return the result of a function, whose changes of variables are lost."""
        with self.keras.StatelessScope():
            return function()

    def differentiate(
        self, compute_losses: Callable[[], tuple[Any, Any]], variables: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        """
        Return the second result of a function, and the gradient of the first for each variable of
        Keras.
        """

        def compute(values: Sequence[Any]) -> tuple[Any, Any]:
            """Return the results with other values of the variables."""
            mapping = list(zip(variables, values))
            with self.keras.StatelessScope(state_mapping=mapping, collect_losses=True):
                return compute_losses()

        return self.gradients(compute, [variable.value for variable in variables])

    def gradients(
        self, function: Callable[[Sequence[Any]], tuple[Any, Any]], values: Sequence[Any]
    ) -> tuple[Any, list[Any]]:
        """
        Return the second result of a function, and the gradient of the first for each value; None
        from torch for a value on which it does not depend, and zeros from JAX.
        """
        if self.name == "jax":
            (_, other), found = self.module.value_and_grad(function, has_aux=True)(list(values))
            return other, found
        inputs = [value.detach().clone().requires_grad_() for value in values]
        with self.module.enable_grad():
            result, other = function(inputs)
        found = self.module.autograd.grad(result, inputs, allow_unused=True)
        return other, list(found)

    def control_dependencies(self, _: Any) -> Any:
        """Return a context without effect: ops run in the order of their calls."""
        return contextlib.nullcontext()

    def as_dtype(self, name: str) -> Any:
        """Return a dtype with its counterpart in NumPy."""
        return SimpleNamespace(name=name, as_numpy_dtype=_numpy_dtype(name))

    def constant(self, value: Any, dtype: Any = None) -> Any:
        """Return an array as a tensor."""
        name = getattr(dtype, "name", dtype)
        return self.keras.ops.convert_to_tensor(value, dtype=name)

    convert_to_tensor = constant

    def cast(self, tensor: Any, dtype: Any) -> Any:
        """Return a tensor in another dtype; the dtype is a name or that of a tensor."""
        return self.keras.ops.cast(tensor, dtype_name(dtype))

    def size(self, tensor: Any) -> int:
        """Return the number of elements of a tensor."""
        return int(np.prod([int(extent) for extent in tensor.shape]))

    def is_inner(self, tensor: Any) -> bool:
        """
        Return whether a tensor has no values yet, as in the body of a loop of JAX. Tensors that are
        differentiated have values.
        """
        is_traced = self.name == "jax" and isinstance(tensor, self.module.core.Tracer)
        return is_traced and type(tensor).__name__ not in _DIFFERENTIATED


def _numbered(kind: str, facts: Sequence[dict[str, Any]]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(kind, "{}:{}".format(kind, number), each) for number, each in enumerate(facts)]


@functools.lru_cache(maxsize=None)
def _numpy_dtype(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
