"""
One backward step of a reference and of a candidate with the same weights, under several loss
scales.

No optimizer is asked, and whatever a call in training changes (moving statistics, states of
generators and of stateful layers) is put back. The loss scales are those of Keras' own rule for a
dynamic one, and of a search over powers of two.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

import numpy as np

from .. import model_calls
from ..library import KERAS3, Refused, sentence
from . import losses
from .training_step import (
    FIELDS,
    Reducer,
    TrainingStep,
    merge_reductions,
    variables_to_train,
    without_random_layers,
)

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping, Sequence

    from ..library import Library


DYNAMIC = {"initial": 2.0**15, "multiplier": 2.0}
"""The first dynamic loss scale of both libraries by default."""

HIGHEST = 24
"""The search ends at 2**24, which lifts the smallest number of float16 to 1."""

LOWEST = -24
_NEARLY = 0.01
"""The share of nonzero elements by which the underflow of a scale may exceed the minimum."""


def dynamic(family: str, recorded: Any) -> dict[str, Any]:
    """
    Return the rule of a dynamic loss scale: its initial value, the divisor after a gradient that is
    not finite, and the smallest value.

    ``_DynamicLossScaleState.update`` (tf_keras/src/mixed_precision/loss_scale_optimizer.py, and
    DynamicLossScale in TF 2.2 and 2.3) divides by the multiplier, down to 1. ``LossScaleOptimizer``
    of Keras 3 (keras/src/optimizers/loss_scale_optimizer.py) always divides by 2, without a lower
    limit. Both skip the step. The scale grows only over many steps, by default after 2000 steps in
    a row with finite gradients, so growth is not measured.
    """
    settings = recorded if recorded is not None and recorded["kind"] == "dynamic" else DYNAMIC
    multiplier = 2.0 if family == KERAS3 else float(settings["multiplier"])
    return {
        "initial": float(settings["initial"]),
        "multiplier": multiplier,
        "floor": 2.0**LOWEST if family == KERAS3 else 1.0,
    }


def settled_scale(
    finite: Callable[[float], bool], rule: dict[str, Any]
) -> tuple[float | None, int]:
    """
    Return the scale at which gradients become finite, and the number of skipped steps; None if they
    never become finite.
    """
    scale, skipped = rule["initial"], 0
    while not finite(scale):
        if scale <= rule["floor"] or rule["multiplier"] <= 1:
            return None, skipped
        scale, skipped = max(scale / rule["multiplier"], rule["floor"]), skipped + 1
    return scale, skipped


def range_of_scales(
    finite: Callable[[float], bool], lost: Callable[[float], float]
) -> tuple[float | None, float | None]:
    """
    Return the lowest and the highest power of two with which nothing overflows and nearly the
    fewest gradients underflow; None if even the lowest scale overflows.

    Overflow grows with the scale and underflow falls, so both ends are found by bisection.

    :param lost: returns the share of the elements that underflow
    """
    start = 0 if finite(1.0) else LOWEST  # a scale below 1 is for what overflows without
    if not finite(2.0**start):
        return None, None
    highest = _last(lambda exponent: finite(2.0**exponent), start, HIGHEST if start == 0 else 0)
    allowed_loss = lost(2.0**highest) + _NEARLY
    lowest = (
        start
        if lost(2.0**start) <= allowed_loss
        else _last(lambda exponent: lost(2.0**exponent) > allowed_loss, start, highest) + 1
    )
    return 2.0**lowest, 2.0**highest


def _last(holds: Callable[[int], bool], first: int, last: int) -> int:
    """
    Return the last number for which a condition is true. The condition is true for the first
    number, and false from some number on.
    """
    if holds(last):
        return last
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if holds(middle) else (first, middle)
    return first


_UNDEFINED, _NONZERO, _UNDERFLOW, _OVERFLOW = (
    FIELDS.index(name) for name in ("undefined", "nonzero", "underflow", "overflow")
)


def compare_gradients(  # noqa: PLR0917  # two models, their inputs, the options and the progress callback
    library: Library,
    reference: Any,
    candidate: Any,
    batches: Sequence[Any],
    options: Mapping[str, Any],
    step: Callable[[str], None],
) -> dict[str, Any]:
    """
    Return the differences between the gradients of the candidate's variables and the reference's,
    for each loss scale that was tried.

    ``batches`` are inputs of the models. ``options`` has the recorded ``loss`` and
    ``loss_weights``, the loss scale that the file records (``recorded``), and a ``seed`` for the
    targets.
    """
    step("tracing a backward step")
    sides = [(model, variables_to_train(library, model)) for model in (reference, candidate)]
    shapes = [[list(variable.raw.shape) for variable in variables] for _, variables in sides]
    if shapes[0] != shapes[1]:
        raise Refused("no-gradients", "the compared models have different trainable variables")
    rule = dynamic(library.family, options["recorded"])
    report = {**_nothing(options["recorded"], rule), "own": _own(library, candidate)}
    if not shapes[0]:
        return report
    with contextlib.ExitStack() as stack:
        report["quiet"], _ = [
            stack.enter_context(without_random_layers(model)) for model, _ in sides
        ]
        try:
            trials = _ScaleTrials(
                library,
                sides,
                [
                    library.tf.nest.map_structure(library.tf.convert_to_tensor, batch)
                    for batch in batches
                ],
                options,
                step,
            )
            report.update(_try_scales(trials, options["recorded"], rule))
        except (Refused, MemoryError, library.tf.errors.ResourceExhaustedError):
            raise
        except Exception as error:
            # ops without gradients, missing kernels, and any error in the code of a custom class
            text = "{} cannot compute the gradients of {}: {}".format(
                library.backend_name, candidate.name, sentence(error)
            )
            raise Refused("no-gradients", text) from error
    report.update(trials.to_json())
    return report


def _nothing(recorded: Any, rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result for a model without trainable variables."""
    return {
        "fields": list(FIELDS),
        "recorded": recorded,
        "outputs": [],
        "quiet": [],
        "random": [],
        "unconnected": [],
        "variables": [],
        "trials": [],
        "reference_loss": None,
        "dynamic": {**rule, "scale": None, "skipped": 0},
        "search": {"lowest": None, "highest": None},
    }


def _own(library: Library, model: Any) -> list[str]:
    """Return the training methods that the class of a model overrides."""
    return [
        name
        for name in ("train_step", "compute_loss")
        if getattr(type(model), name, None) is not getattr(library.keras.Model, name, None)
    ]


class _ScaleTrials:
    """The results of each tried loss scale."""

    def __init__(
        self,
        library: Library,
        sides: Sequence[Any],
        batches: Sequence[Any],
        options: Mapping[str, Any],
        step: Callable[[str], None],
    ) -> None:
        self.library = library
        self.step = step
        self.done: dict[float, tuple[float, Any]] = {}
        """
        The candidate's loss and the reductions by scale, with a row for each variable with a
        gradient.
        """
        self.sides = sides
        self.reducer = Reducer(library)
        forward = TrainingStep(library, *sides[0])
        outputs = [forward.outputs(batch) for batch in batches]
        self.parts = _parts(library, sides[0][0], outputs[0], options)
        self.batches = self._prepare_batches(batches, outputs, options["seed"])

    def finite(self, scale: float) -> bool:
        """
        Return whether all gradients are finite, except those whose references are not. An overflow
        under a scale also occurs under all larger scales.
        """
        known = {other: not table[:, _OVERFLOW].any() for other, (_, table) in self.done.items()}
        if any(other <= scale and not is_finite for other, is_finite in known.items()):
            return False
        return not self.at(scale)[1][:, _OVERFLOW].any()

    def lost(self, scale: float) -> float:
        """Return the share of nonzero elements that underflow."""
        table = self.at(scale)[1]
        underflow, nonzero = table[:, _UNDERFLOW].sum(), table[:, _NONZERO].sum()
        return float(underflow / nonzero) if nonzero else 0.0

    def at(self, scale: float) -> tuple[float, Any]:
        """Return the candidate's mean loss and the reductions over all batches under a scale."""
        if scale not in self.done:
            self.step("computing gradients with loss scale {:g}".format(scale))
            tensor = self.library.tf.constant(scale, self.library.tf.float32)
            batch_results = [self._measure_batch(tensor, *batch) for batch in self.batches]
            table = functools.reduce(merge_reductions, (table for _, table in batch_results))
            self.done[scale] = float(np.mean([loss for loss, _ in batch_results])), table
        return self.done[scale]

    @property
    def undefined(self) -> bool:
        """Whether the reference has gradients that are not finite."""
        return bool(self.at(1.0)[1][:, _UNDEFINED].any())

    def to_json(self) -> dict[str, Any]:
        """Return the losses, the compared variables, and the tried loss scales, as JSON."""
        variables = self.scaled.variables
        connected = [variable for variable, known in zip(variables, self.connected) if known]
        return {
            "outputs": [part.to_json() for part in self.parts],
            "random": self.random,
            "unconnected": [
                "{}/{}".format(variable.layer, variable.name)
                for variable, known in zip(variables, self.connected)
                if not known
            ],
            "reference_loss": self.loss,
            "variables": [variable.to_json() for variable in connected],
            "trials": [
                {
                    "scale": scale,
                    "loss": self.done[scale][0],
                    "values": self.done[scale][1].tolist(),
                }
                for scale in sorted(self.done)
            ],
        }

    def _measure_batch(
        self, scale: Any, inputs: Any, targets: Any, references: Sequence[Any]
    ) -> tuple[float, Any]:
        """Return the candidate's loss on a batch, and the reductions."""
        loss, vectors = self.scaled.gradients(scale, inputs, targets)
        rows = [
            self.reducer.reduce(reference, vector, scale, str(variable.flow))
            for variable, reference, vector in zip(self.scaled.variables, references, vectors)
            if reference is not None
        ]
        return loss, np.array(rows).reshape(-1, len(FIELDS))

    def _prepare_batches(
        self, batches: Sequence[Any], outputs: Sequence[Any], seed: int
    ) -> list[tuple[Any, Any, Any]]:
        """
        Return inputs, targets and the reference's gradients for each batch, with mean squared error
        if the recorded loss does not accept the outputs.
        """
        try:
            return self._differentiate(batches, outputs, seed)
        except (Refused, MemoryError, self.library.tf.errors.ResourceExhaustedError):
            raise
        except (
            Exception
        ) as error:  # what is wrong with a loss for these outputs is told in many ways
            recorded = [part for part in self.parts if part.source == "recorded"]
            if not recorded:
                raise
            for part in recorded:
                losses.substitute(
                    self.library,
                    part,
                    "the recorded loss cannot be computed: {}".format(sentence(error)[:160]),
                )
            return self._differentiate(batches, outputs, seed)

    def _differentiate(
        self, batches: Sequence[Any], outputs: Sequence[Any], seed: int
    ) -> list[tuple[Any, Any, Any]]:
        """
        Return inputs, targets and reference gradients for each batch. This also sets the steps of
        both sides, the mean loss, which variables have a gradient, and the ops that draw random
        numbers.
        """
        nest = self.library.tf.nest
        self.plain, self.scaled = (
            TrainingStep(self.library, model, variables) for model, variables in self.sides
        )  # a function that failed once cannot be used again
        for side in (self.plain, self.scaled):
            losses.compile_losses(self.library, side.model, outputs[0], self.parts)
        prepared, values, unit_scale = [], [], self.library.tf.constant(1.0)
        for number, (batch, output) in enumerate(zip(batches, outputs)):
            random = np.random.RandomState(1000 * seed + number)
            targets = [
                self.library.tf.constant(losses.draw_targets(part, tensor, random))
                for part, tensor in zip(self.parts, nest.flatten(output))
            ]
            nested = nest.pack_sequence_as(output, targets)
            loss, vectors = self.plain.gradients(unit_scale, batch, nested)
            values.append(loss)
            prepared.append((batch, nested, vectors))
        self.loss = float(np.mean(values))
        self.connected = [gradient is not None for gradient in prepared[0][2]]
        self.random = self.plain.drawing(unit_scale, *prepared[0][:2])
        return prepared


def _try_scales(trials: _ScaleTrials, recorded: Any, rule: dict[str, Any]) -> dict[str, Any]:
    """Try all scales: none, the recorded one, a dynamic one, and those of a search."""
    loss, _ = trials.at(1.0)
    if recorded is not None and recorded["kind"] == "fixed":
        trials.at(float(recorded["value"]))
    if not np.isfinite(loss) or trials.undefined:
        return {}  # no scale makes them finite
    lowest, highest = range_of_scales(trials.finite, trials.lost)
    scale, skipped = settled_scale(trials.finite, rule) if highest is not None else (None, 0)
    if scale is not None:
        trials.at(scale)
    return {
        "dynamic": {**rule, "scale": scale, "skipped": skipped},
        "search": {"lowest": lowest, "highest": highest},
    }


def _parts(library: Library, model: Any, outputs: Any, options: Mapping[str, Any]) -> list[Any]:
    """Return the losses of the model's outputs."""
    flat = library.tf.nest.flatten(outputs)
    names = model_calls.output_names(model, outputs, len(flat)) or [
        "output_{}".format(place + 1) for place in range(len(flat))
    ]
    parts = losses.parts(library, names, flat, options)
    if all(part.loss is None for part in parts):
        raise Refused(
            "no-gradients",
            "no output of {} has a loss: {}".format(
                model.name, parts[0].why or "the recorded loss excludes all of them"
            ),
        )
    return parts
