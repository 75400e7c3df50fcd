"""How long each layer of a model takes, called op by op."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .. import model_calls
from .layer_hooks import Tape, named

if TYPE_CHECKING:
    from typing import Any, Callable

    from ..library import Library
    from .layer_hooks import Call, LayerId

REPEATS = 4
"""Calls of the model; the first one, which fills caches, does not count."""


def layer_times(
    library: Library, model: Any, inputs: Any, policy: str | None
) -> list[dict[str, Any]]:
    """
    Return the shortest time of each layer over several calls, in seconds: of all its calls in one
    call of the model together, with those of the layers in it.
    """
    shortest: dict[LayerId, float] = {}
    for number in range(REPEATS):
        watch = _Stopwatch(library, model)
        with watch.tape.watching(), library.under(policy):
            model_calls.call(model, inputs)
        for layer, seconds in watch.spent.items() if number else ():
            shortest[layer] = min(shortest.get(layer, seconds), seconds)
    return [{**layer.fields(), "seconds": seconds} for layer, seconds in shortest.items()]


class _Stopwatch:
    """Times the calls of one model."""

    def __init__(self, library: Library, model: Any) -> None:
        self.tape = Tape(library, model, named(model), self._timed)
        self.spent: dict[LayerId, float] = {}

        self._sync = getattr(library.tf.test.experimental, "sync_devices", None)
        """Waits for GPUs; older releases of TensorFlow lack it."""

    def _timed(self, call: Call, make: Callable[..., Any]) -> Any:
        start = time.perf_counter()
        outputs = self.tape.made(call, make)
        if self._sync is not None:
            self._sync()
        layer = call.layer_id
        self.spent[layer] = self.spent.get(layer, 0.0) + time.perf_counter() - start
        return outputs
