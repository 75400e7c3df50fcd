"""
The depths of reductions on a backend without graphs: the number of terms that each op of Keras 3
adds up, from the shapes of its tensors.

The ops of a backend are functions of the modules ``numpy``, ``nn`` and ``math``, which are replaced
while a model runs. Ops that call other ops count once, and the ops of an RNN's step once for each
step.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping

    Depth = Callable[[Mapping[str, Any], Any], int]
    """Returns the depth of an op from its arguments by name and its result."""


def product(extents: Any) -> int:
    """Return the product of the sizes of dimensions."""
    return functools.reduce(operator.mul, (int(extent) for extent in extents), 1)


def einsum_depth(equation: str, shapes: list[list[int]]) -> int:
    """Return the number of terms of each element of an einsum."""
    operands, _, result = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for labels, shape in zip(operands.split(","), shapes):
        before, dots, after = labels.partition("...")
        sizes.update(zip(before, shape))
        sizes.update(zip(reversed(after if dots else ""), reversed(shape)))
    return product([size for label, size in sizes.items() if label not in result])


def _shape(tensor: Any) -> list[int]:
    return list(getattr(tensor, "shape", ()))


def _reduced(arguments: Mapping[str, Any], result: Any) -> int:
    """Return how many elements of the first argument there are for each element of the result."""
    first = result[0] if isinstance(result, (list, tuple)) else result
    before = product(_shape(next(iter(arguments.values()))))
    return max(before // max(product(_shape(first)), 1), 1)


def _along_axis(arguments: Mapping[str, Any], _: Any) -> int:
    first, axis = next(iter(arguments.values())), arguments.get("axis")
    shape = _shape(first)
    return int(shape[axis]) if isinstance(axis, int) and shape else product(shape)


def _matmul(arguments: Mapping[str, Any], _: Any) -> int:
    return int((_shape(next(iter(arguments.values()))) or [1])[-1])


def _einsum(arguments: Mapping[str, Any], _: Any) -> int:
    return einsum_depth(arguments["subscripts"], list(map(_shape, arguments["operands"])))


def _tensordot(arguments: Mapping[str, Any], result: Any) -> int:
    first, second = list(arguments.values())[:2]
    both = product(_shape(first)) * product(_shape(second))
    return int(max(round((both / max(product(_shape(result)), 1)) ** 0.5), 1))


def _conv(arguments: Mapping[str, Any], _: Any) -> int:
    return product(_shape(arguments["kernel"])[:-1])


def _depthwise(arguments: Mapping[str, Any], _: Any) -> int:
    return product(_shape(arguments["kernel"])[:-2])


def _separable(arguments: Mapping[str, Any], _: Any) -> int:
    pointwise = _shape(arguments["pointwise_kernel"])
    return product(_shape(arguments["depthwise_kernel"])[:-2]) + product(pointwise[:-1])


def _transposed(arguments: Mapping[str, Any], _: Any) -> int:
    shape = _shape(arguments["kernel"])
    return product(shape[:-2] + shape[-1:])


def _window(arguments: Mapping[str, Any], _: Any) -> int:
    size, dimensions = arguments["pool_size"], len(_shape(arguments["inputs"])) - 2
    return int(size) ** dimensions if isinstance(size, int) else product(size)


def _attention(arguments: Mapping[str, Any], _: Any) -> int:
    """Return the depth of the scores, of their softmax and of the weighted sum."""
    return _shape(arguments["query"])[-1] + 2 * _shape(arguments["key"])[1]


def _recurrent(arguments: Mapping[str, Any], _: Any) -> int:
    kernels = arguments["kernel"], arguments["recurrent_kernel"]
    return int(_shape(arguments["inputs"])[1]) * sum(_shape(kernel)[0] for kernel in kernels)


_DEPTHS: Mapping[str, Mapping[str, Depth]] = {
    "numpy": {
        **dict.fromkeys(("average", "mean", "nansum", "std", "sum", "var"), _reduced),
        **dict.fromkeys(("cumsum",), _along_axis),
        **dict.fromkeys(("dot", "inner", "matmul", "vdot"), _matmul),
        "einsum": _einsum,
        "tensordot": _tensordot,
    },
    "nn": {
        "average_pool": _window,
        "conv": _conv,
        "conv_transpose": _transposed,
        "depthwise_conv": _depthwise,
        "dot_product_attention": _attention,
        **dict.fromkeys(("log_softmax", "softmax"), _along_axis),
        "moments": _reduced,
        "separable_conv": _separable,
    },
    "math": {"logsumexp": _reduced},
    "": {"gru": _recurrent, "lstm": _recurrent},
}
"""The depth of each op, by its module in ``keras.src.backend`` and its name."""

_STEPS = "rnn"


class _Counter:
    """Adds up the depths of ops that no other counted op calls."""

    def __init__(self, add: Callable[[int], None]) -> None:
        self._add = add
        self._factor = 1
        self._is_within = False

    def counting(self, original: Callable[..., Any], depth: Depth) -> Callable[..., Any]:
        """Return an op that also adds its depth."""

        @functools.wraps(original)
        def run(*args: Any, **kwargs: Any) -> Any:
            if self._is_within:
                return original(*args, **kwargs)
            self._is_within = True
            try:
                result = original(*args, **kwargs)
            finally:
                self._is_within = False
            bound = inspect.signature(original).bind(*args, **kwargs)
            bound.apply_defaults()
            self._add(self._factor * depth(bound.arguments, result))
            return result

        return run

    def repeating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """
        Return a loop over time steps whose ops count for each step: those of the first call for all
        steps, because JAX calls a step once, and torch once more than there are steps.
        """

        @functools.wraps(original)
        def run(step_function: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("unroll"):
                return original(step_function, inputs, *args, **kwargs)
            before = self._factor
            steps = importlib.import_module("keras.src.tree").flatten(inputs)[0].shape[1]
            called: list[bool] = []

            def step(*step_args: Any, **step_kwargs: Any) -> Any:
                was_within = self._is_within
                self._is_within = was_within or bool(called)
                called.append(True)
                try:
                    return step_function(*step_args, **step_kwargs)
                finally:
                    self._is_within = was_within

            self._factor *= int(steps or 1)
            try:
                return original(step, inputs, *args, **kwargs)
            finally:
                self._factor = before

        return run


@contextlib.contextmanager
def reductions_watched(add: Callable[[int], None]) -> Iterator[None]:
    """Call ``add`` with the depth of each reduction in the context."""
    backend = importlib.import_module("keras.src.backend")
    counter = _Counter(add)
    with contextlib.ExitStack() as stack:

        def replace(module: Any, name: str, change: Callable[[Any], Any]) -> None:
            original = getattr(module, name, None)
            if original is not None:
                setattr(module, name, change(original))
                stack.callback(setattr, module, name, original)

        for module_name, depths in _DEPTHS.items():
            module = getattr(backend, module_name) if module_name else backend
            for name, depth in depths.items():
                replace(module, name, functools.partial(counter.counting, depth=depth))
        replace(backend, _STEPS, counter.repeating)
        yield
