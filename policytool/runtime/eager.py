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


class EagerBackend:
    """The operations of a backend, under the names that they have in TensorFlow."""

    runs_op_by_op = True
    float32 = "float32"
    float64 = "float64"
    int64 = "int64"
    TensorSpec = TensorSpec
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

    def device(self, name: str) -> Any:
        """Return a context in which a device computes, without records for gradients."""
        stack = contextlib.ExitStack()
        stack.enter_context(self.keras.device(name))
        if self.name == "torch":
            stack.enter_context(self.module.no_grad())
        return stack

    def devices(self) -> list[tuple[str, str, Any]]:
        """Return the kind, the name and the model of each device, CPUs first."""
        if self.name == "torch":
            count = self.module.cuda.device_count()
            names = [self.module.cuda.get_device_name(number) for number in range(count)]
            return [("cpu", "cpu:0", None), *_numbered("gpu", names)]
        kinds = ["cpu", "gpu"] if self.module.default_backend() != "cpu" else ["cpu"]
        return [
            entry
            for kind in kinds
            for entry in _numbered(kind, [item.device_kind for item in self.module.devices(kind)])
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
        return lambda inputs: call(*values, inputs)[0]

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

    def cast(self, tensor: Any, dtype: Any) -> Any:
        """Return a tensor in another dtype; the dtype is a name or that of a tensor."""
        return self.keras.ops.cast(tensor, dtype_name(dtype))

    def stack(self, vectors: Sequence[Any]) -> Any:
        """Return the results of comparisons as one array."""
        return np.stack(vectors)

    def zeros(self, shape: Sequence[int], dtype: str) -> Any:
        """Return an array of zeros."""
        return np.zeros(shape, dtype)

    def where(self, mask: Any, first: Any, second: Any) -> Any:
        """Return the elements of two tensors that a mask selects."""
        return self.keras.ops.where(mask, first, second)

    def equal(self, first: Any, second: Any) -> Any:
        """Return where two tensors are equal."""
        return self.keras.ops.equal(first, second)

    def size(self, tensor: Any) -> int:
        """Return the number of elements of a tensor."""
        return int(np.prod([int(extent) for extent in tensor.shape]))

    def is_inner(self, tensor: Any) -> bool:
        """Return whether a tensor has no values yet, as in the body of a loop of JAX."""
        return self.name == "jax" and isinstance(tensor, self.module.core.Tracer)


def _numbered(kind: str, models: Sequence[Any]) -> list[tuple[str, str, Any]]:
    return [(kind, "{}:{}".format(kind, number), model) for number, model in enumerate(models)]


@functools.lru_cache(maxsize=None)
def _numpy_dtype(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:
        return np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
