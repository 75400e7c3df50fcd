"""
Make backward steps of small live models: ``python backward.py FAMILY JOBS RESULTS``.

FAMILY is ``keras2`` or ``keras3``. JOBS is a JSON list of objects. ``model`` names a method of Live
that builds one, in float32 and under ``policy`` with the same weights; ``files`` are the paths of a
reference and of a candidate instead; ``wanted`` is what ``gradients`` takes. RESULTS gets a JSON
list: for each job its ``result`` or what it was ``refused`` with, whether every variable has
``kept`` its value and every layer its ``call``, and how often a step was traced.

A job with ``train`` also gets the loss scale at which the library's own optimizer arrives in that
many steps. One with ``reference`` and ``scaled``, two lists of numbers, gets the reductions of one
variable alone. One with ``spelled``, a list of losses as files record them, gets for each what it
comes to on class probabilities; with none it gets them for every class that the library has.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "policytool"))
library_of: Any = import_module("runtime.library")
backward: Any = import_module("runtime.gradients.backward")
training_step: Any = import_module("runtime.gradients.training_step")
losses: Any = import_module("runtime.gradients.losses")
seeded: Any = import_module("runtime.feeding.recipes")

BATCHES: Final = 2
SIZE: Final = 8


class Live:
    """Models of one library."""

    def __init__(self, family: str) -> None:
        self.library = library_of.Library(family)
        self.tf, self.keras = self.library.tf, self.library.keras
        self.layers = self.keras.layers

    def dense(self, *, rate: float = 0.0) -> Any:
        """Return a classifier with a batch normalisation and, where asked, a Dropout."""
        inputs = self.layers.Input((16,))
        hidden = self.layers.BatchNormalization()(self.layers.Dense(32, activation="relu")(inputs))
        hidden = self.layers.Dropout(rate)(hidden) if rate else hidden
        return self.keras.Model(
            inputs, self.layers.Dense(4, activation="softmax", dtype="float32")(hidden)
        )

    def dropping(self) -> Any:
        """Return the classifier with a Dropout."""
        return self.dense(rate=0.5)

    def frozen(self) -> Any:
        """Return the classifier with nothing to train."""
        model = self.dense()
        model.trainable = False
        return model

    def two(self) -> Any:
        """
        Return a model of ids with two outputs, one of which an LSTM with dropout is on the way to.
        """
        inputs = self.layers.Input((6,), dtype="int32")
        hidden = self.layers.LSTM(7, dropout=0.2)(self.layers.Embedding(50, 8)(inputs))
        return self.keras.Model(
            inputs,
            [
                self.layers.Dense(3, name="a")(hidden),
                self.layers.Dense(2, name="b", activation="sigmoid")(hidden),
            ],
        )

    def subclassed(self) -> Any:
        """
        Return a model with code of its own that gives a dictionary, and has a variable that nothing
        depends on.
        """
        layers = self.layers

        class Net(self.keras.Model):  # type: ignore[misc,name-defined]
            def __init__(self) -> None:
                super().__init__()
                self.first, self.second, self.aside = (
                    layers.Dense(8, name="first"),
                    layers.Dense(3, name="second"),
                    layers.Dense(2, name="aside"),
                )

            def call(self, inputs: Any) -> Any:
                self.aside(inputs)
                hidden = self.first(inputs)
                return {"score": self.second(hidden), "hidden": hidden}

        model = Net()
        model(np.zeros((1, 16), dtype="float32"))
        return model

    def hue(self) -> Any:
        """Return a model with an op that has no gradient."""
        tf = self.tf

        class Hue(self.layers.Layer):  # type: ignore[misc,name-defined]
            def call(self, inputs: Any) -> Any:
                return tf.cast(
                    tf.raw_ops.AdjustHue(images=tf.cast(inputs, tf.float32), delta=0.1),
                    inputs.dtype,
                )

            def compute_output_shape(self, shape: Any) -> Any:
                return shape

        inputs = self.layers.Input((16,))
        return self.keras.Model(
            inputs, Hue()(self.layers.Reshape((2, 2, 3))(self.layers.Dense(12)(inputs)))
        )

    def huge(self) -> Any:
        """Return a model whose output is above the largest number of float16."""
        inputs = self.layers.Input((16,))
        return self.keras.Model(
            inputs,
            self.layers.Dense(
                2, kernel_initializer="ones", bias_initializer=self.keras.initializers.Constant(1e5)
            )(inputs),
        )

    def pair(self, name: str, policy: str) -> tuple[Any, Any]:
        """Return a model in float32 and under another policy, with the same weights."""
        created = []
        for item in ("float32", policy):
            self.keras.utils.set_random_seed(3)
            with self.library.global_policy(item):
                created.append(getattr(self, name)())
        created[1].set_weights(created[0].get_weights())
        return created[0], created[1]

    def batches(self, model: Any, name: str | None) -> list[Any]:
        """Return inputs for a model."""
        if name == "two":
            return [
                np.random.RandomState(seed).randint(0, 50, (SIZE, 6)).astype("int32")
                for seed in range(BATCHES)
            ]
        if name is not None:
            return [
                np.random.RandomState(seed).standard_normal((SIZE, 16)).astype("float32")
                for seed in range(BATCHES)
            ]
        specs = seeded.input_slots(model.inputs)
        drawn = [
            seeded.draw_inputs(self.library, model, specs, seed, SIZE) for seed in range(BATCHES)
        ]
        return [item[0] if len(item) == 1 else item for item in drawn]

    def trained(self, model: Any, batches: list[Any], job: dict[str, Any]) -> float:
        """
        Return the loss scale that the library's own optimizer has after some steps, none of which
        changes a weight.
        """
        expected = job["wanted"]
        optimizer = self.keras.mixed_precision.LossScaleOptimizer(
            self.keras.optimizers.SGD(0.0), initial_scale=expected["recorded"]["initial"]
        )
        model.compile(optimizer=optimizer, loss=expected["loss"])
        part = losses.OutputLossSpec("all")
        part.take(None, expected["loss"], "recorded")
        targets = [
            losses.draw_targets(
                part, model(batch), np.random.RandomState(1000 * expected["seed"] + number)
            )
            for number, batch in enumerate(batches)
        ]
        for step in range(job["train"]):
            model.train_on_batch(batches[step % len(batches)], targets[step % len(batches)])
        return float(
            np.asarray(
                optimizer.dynamic_scale
                if hasattr(optimizer, "dynamic_scale")
                else optimizer.loss_scale
            )
        )

    def reduced(self, job: dict[str, Any]) -> list[float]:
        """Return the reductions of a gradient that flowed in float16, under a scale."""
        reference, scaled = (
            self.tf.constant(job["reference"], "float32"),
            self.tf.cast(self.tf.constant(job["scaled"], "float16"), "float32"),
        )
        vector = training_step.Reducer(self.library).reduce(
            reference, scaled, self.tf.constant(job["scale"], "float32"), "float16"
        )
        result: list[float] = np.asarray(vector).tolist()
        return result

    def losses(self, spelled: list[Any]) -> dict[str, Any]:
        """
        Return what kind of targets each loss has, and what it comes to; an error where it takes no
        class probabilities.
        """
        outputs = self.tf.nn.softmax(
            np.random.RandomState(1).standard_normal((SIZE, 4)).astype("float32")
        )
        every = [
            name
            for name, item in vars(self.keras.losses).items()
            if isinstance(item, type) and hasattr(item, "get_config") and name != "Loss"
        ]
        found = {}
        for item in spelled or [
            {"class_name": name, "config": getattr(self.keras.losses, name)().get_config()}
            for name in every
        ]:
            part = losses.OutputLossSpec("out")
            part.take(*losses.build_loss(self.library, item), "recorded")
            try:
                value = part.loss(
                    losses.draw_targets(part, outputs, np.random.RandomState(2)), outputs
                )
            except (TypeError, ValueError, self.tf.errors.OpError) as error:
                found[str(part.name)] = [part.targets, str(error)]
            else:
                found[str(part.name)] = [part.targets, float(np.mean(value))]
        return found


def values(*models: Any) -> list[Any]:
    """Return what every variable of models holds."""
    return [
        np.array(variable)
        for model in models
        for variable in (*model.weights, *getattr(model, "non_trainable_variables", ()))
    ]


def done(live: Live, job: dict[str, Any]) -> dict[str, Any]:
    """Do one job."""
    if "scaled" in job:
        return {"values": live.reduced(job), "fields": list(training_step.FIELDS)}
    if "spelled" in job:
        return {"losses": live.losses(job["spelled"])}
    traced: list[Any] = []
    plain = training_step.TrainingStep._differentiate  # noqa: SLF001  # what is traced

    def counting(*arguments: Any) -> Any:
        traced.append(arguments[0])
        return plain(*arguments)

    loaded = [live.library.load(path, compiled=False, trust=False) for path in job.get("files", ())]
    reference, candidate = loaded or live.pair(job["model"], job["policy"])
    batches = live.batches(reference, job.get("model"))
    before = values(reference, candidate)
    training_step.TrainingStep._differentiate = counting  # noqa: SLF001
    try:
        found: dict[str, Any] = {
            "result": backward.compare_gradients(
                live.library, reference, candidate, batches, job["wanted"], lambda _: None
            )
        }
    except library_of.Refused as error:
        found = {"refused": [error.code, str(error)]}
    finally:
        training_step.TrainingStep._differentiate = plain  # noqa: SLF001
    after = values(reference, candidate)
    same = len(before) == len(after) and all(
        np.array_equal(one, other, equal_nan=True) for one, other in zip(before, after, strict=True)
    )
    found.update(
        traces=len(traced),
        kept=same and not any("call" in vars(layer) for _, layer in library_of.paths(candidate)),
    )
    if "train" in job:
        found["trained"] = live.trained(candidate, batches, job)
    return found


def main() -> None:
    """Do every job and write down what came of it."""
    family, jobs, results = sys.argv[1:]
    live = Live(family)
    Path(results).write_text(
        json.dumps([done(live, job) for job in json.loads(Path(jobs).read_text(encoding="utf-8"))]),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
