"""
The job ``predict``: what one file makes of inputs that are drawn for it, or of those that another
process drew for another file.

The arrays go through files of NumPy's, under the numbers of inputs and outputs in the order in
which TensorFlow flattens them: dicts by key, lists by position. bfloat16 stands in them as float32,
which holds every value of it.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np

from . import serving, unchanged
from .feeding import given
from .feeding.inputs import fed
from .library import Library, Refused
from .sentences import sentence

if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    from .feeding.inputs import Fed

SEED = 11
BATCHES = 2


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Return the names and dtypes of what ``job["model"]`` takes and gives, having written the values
    to ``job["outputs"]``, of each output by batch.

    ``job["inputs"]`` is the file of the inputs: written where ``job["like"]`` is None, else read,
    and ``like`` is what the answer for that file had as ``inputs``. ``job["which"]`` names the file
    in sentences.

    :raises Refused: where the file cannot be loaded or called, or gives what no array holds.
    """
    step("importing TensorFlow")
    library = Library(job["family"])
    library.register(job["custom_objects"], job["registered"], job["needed"])
    if job["trust"]:
        library.trust()
    unchanged.check(job)  # after TensorFlow's import, which takes seconds
    step("predicting with " + job["which"])
    with library.loading(job["which"], job["registered"]), library.under(job["policy"]):
        model = library.load(job["model"], compiled=False, trust=job["trust"], as_is=True)
    inputs = _inputs(library, model, job)
    made, names = _made(library, model, inputs, job["which"])
    arrays = {
        "{}.{}".format(place, batch): array
        for batch, one in enumerate(made)
        for place, (_, array) in enumerate(one)
    }
    given.write(job["outputs"], arrays)
    told = {
        "versions": library.versions,
        "samples": inputs.told["batches"] * inputs.batch_size,
        "batches": len(made),
        "inputs": [{"name": one["name"], "dtype": one["dtype"]} for one in inputs.told["inputs"]],
        "outputs": [{"name": name, "dtype": dtype} for name, (dtype, _) in zip(names, made[0])],
    }
    del model, inputs, made
    gc.collect()  # the process stays, and another loads the other file now
    return told


def _inputs(library: Library, model: Any, job: Mapping[str, Any]) -> Fed:
    like = job["like"]
    wanted = {
        "file": job["inputs"] if like is not None else None,
        "save": job["inputs"] if like is None else None,
        "batches": BATCHES,
        "batch_size": None,
        "seed": SEED,
        "like": like,
    }
    try:
        return fed(library, model, wanted)
    except Refused as error:
        if error.code != "not-callable":
            raise Refused(error.code, "{}: {}".format(job["which"], error)) from error
        raise _not_callable(job["which"], error.__cause__) from error


def _made(
    library: Library, model: Any, inputs: Fed, which: str
) -> tuple[list[list[tuple[str, Any]]], list[str]]:
    """Return each output of each batch, and the outputs' names."""
    nest = library.tf.nest
    made = []
    names: list[str] = []
    for batch in inputs.batches:
        try:
            outputs = serving.call(model, batch)
        except library.tf.errors.ResourceExhaustedError:
            raise
        except (ValueError, TypeError, library.tf.errors.OpError) as error:
            raise _not_callable(which, error) from error
        flat = nest.flatten(outputs)
        names = serving.output_names(model, outputs, len(flat)) or [
            str(place) for place in range(len(flat))
        ]
        made.append([_array(library, tensor, which) for tensor in flat])
    return made, names


def _array(library: Library, tensor: Any, which: str) -> tuple[str, Any]:
    """Return a tensor's dtype and its values."""
    if (
        not hasattr(tensor, "dtype")
        or "Ragged" in type(tensor).__name__
        or "Sparse" in type(tensor).__name__
    ):
        raise Refused(
            "outputs",
            "{}: an output is {}, which is not compared".format(which, type(tensor).__name__),
        )
    dtype = str(getattr(tensor.dtype, "name", tensor.dtype))
    return dtype, np.asarray(library.tf.cast(tensor, "float32") if dtype == "bfloat16" else tensor)


def _not_callable(which: str, error: BaseException | None) -> Refused:
    text = "{} cannot be called with inputs of its own shapes: {}"
    return Refused(
        "not-callable",
        text.format(which, sentence(error) if error is not None else "none were tried"),
    )
