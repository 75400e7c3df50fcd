"""
The job ``predict``: the outputs of one file for inputs that are drawn for it, or for those that
were drawn for another file.

The arrays go through files of NumPy's in one directory. Outputs have the numbers of their call, of
the output and of the batch for a name, in the order in which TensorFlow flattens them: dicts by
key, lists by position. bfloat16 stands in them as float32, which holds every value of it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
from typing import TYPE_CHECKING

from . import model_calls
from .devices import list_devices
from .feeding import given_arrays
from .feeding.inputs import feed_known_signature, feed_model
from .library import Library, Refused, sentence
from .tensors import dtype_name, to_array, values_of

if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Mapping, Sequence

    from .feeding.batches import FedInputs

SEED = 11
BATCHES = 2
OUTPUT_SHARE = 8
"""
The maximum share of a job's memory for outputs: layers need as much memory as outputs, outputs are
written compressed, and the parent process reads the files of both models.
"""
_STATUS = "/proc/self/status"
_DATA = "VmData:"
"""The name of the size that ``RLIMIT_DATA`` limits: private writable memory."""

_KILOBYTE = 1024
_NO_KERNEL = "OpKernel"
"""TensorFlow's message for an op without a kernel for the device."""


def run(job: Mapping[str, Any], step: Callable[[str], None]) -> dict[str, Any]:
    """
    Return the names and dtypes of the inputs and outputs of ``job["model"]``, for its own call and
    with ``job["signatures"]`` for each signature, having written the values of the outputs to
    ``job["outputs"]``. With ``job["weights"]``, the model is that of ``job["config"]``, with the
    weights of this file. With ``job["preset"]``, it is the backbone of a KerasHub preset, with the
    weights in this file of the directory.

    ``job["inputs"]`` is the directory of the inputs. It is written if ``job["like"]`` is None;
    otherwise it is read, and ``like`` is the list ``calls`` of the answer for the other file. A
    signature that only one of the files has is not called. ``job["which"]`` names the file in
    messages. With ``like``, the model is also called as ``model.predict`` calls it.

    :raises Refused: if the file cannot be loaded or called, or has outputs that no array can store.
    """
    step("verifying: importing the backend")
    library = Library(job["family"], job["backends"])
    library.register(job["custom_objects"], job["registered"], job["needed"])
    if job["trust"]:
        library.trust(job["functions"])
    step("verifying: predicting with " + job["which"])
    with memory_bounded(job["memory"], library.tf):
        answer = _Predictor(library, job).predict()
    gc.collect()  # the process stays, and loads another file next
    return answer


@contextlib.contextmanager
def memory_bounded(bound: Mapping[str, Any] | None, tf: Any) -> Iterator[None]:
    """
    Let this process take so many bytes more than it has, within the context, and no more in all
    than ``bound["most"]``; without a bound, as many as before. Only Linux says what it has.

    Devices are set up before: what that takes depends on the machine and not on the job.
    """
    if bound is None:
        yield
        return
    import resource  # POSIX alone, as the parent is where it sends a bound

    list_devices(tf)
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(
        resource.RLIMIT_DATA, (min(_data_size() + bound["bytes"], bound["most"]), hard)
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_size() -> int:
    with open(_STATUS, encoding="ascii") as stream:
        return next(int(line.split()[1]) * _KILOBYTE for line in stream if line.startswith(_DATA))


class _Predictor:
    """A loaded file, and the arrays of its predictions."""

    def __init__(self, library: Library, job: Mapping[str, Any]) -> None:
        self.library = library
        self.job = job
        self.which = job["which"]
        with library.loading(
            self.which, job["registered"], release=job["release"], is_selected=job["has_source"]
        ), library.global_policy(job["policy"]):
            self.model = self._load()
        self.loaded = (
            library.tf.saved_model.load(job["model"]) if job["signatures"] else None
        )  # held: its signatures do not keep their variables alive in TF 2.2
        self.signatures = dict(self.loaded.signatures) if self.loaded is not None else {}
        self.arrays: dict[str, Any] = {}
        self.samples = 0
        self.size = 0

    def _load(self) -> Any:
        """Return the model of the file, or of an architecture and its weights."""
        job, trust = self.job, self.job["trust"]
        if job["preset"] is not None:
            weights = os.path.join(job["model"], job["preset"])
            return self.library.build_preset(job["config"], weights, trust=trust)
        if job["weights"] is not None:
            return self.library.build(job["config"], job["weights"], trust=trust)
        return self.library.load(job["model"], compiled=False, trust=trust, as_is=job["as_is"])

    def predict(self) -> dict[str, Any]:
        """Call the model and its signatures; return the job's answer."""
        calls = [self._call(call) for call in self._compared_calls()]
        given_arrays.write_arrays(self.job["outputs"], self.arrays)
        return {"versions": self.library.versions, "samples": self.samples, "calls": calls}

    def _compared_calls(self) -> list[Mapping[str, Any]]:
        """Return the calls to compare; those in ``job["like"]`` include the other file's inputs."""
        if self.job["like"] is not None:
            return [
                call
                for call in self.job["like"]
                if call["signature"] is None or call["signature"] in self.signatures
            ]
        return [
            {"signature": name, "number": number, "inputs": None}
            for number, name in enumerate([None, *sorted(self.signatures)])
        ]

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Run a call on its inputs, keep the arrays of its outputs, and return its description."""
        name, number = call["signature"], call["number"]
        subject = self.which if name is None else "signature {} of {}".format(name, self.which)
        inputs = self._inputs(call, subject)
        if name is None:
            self.samples = inputs.report["batches"] * inputs.batch_size
            self.size = inputs.size
        names: list[str] = []
        dtypes: list[str] = []
        for batch, tensors in enumerate(inputs.batches):
            outputs = self._outputs(name, tensors, subject)
            flat = self.library.tf.nest.flatten(outputs)
            names = model_calls.output_names(self.model, outputs, len(flat)) or [
                str(place) for place in range(len(flat))
            ]
            typed_arrays = [_array(tensor, subject) for tensor in flat]
            dtypes = [dtype for dtype, _ in typed_arrays]
            for place, (_, array) in enumerate(typed_arrays):
                self.arrays["{}.{}.{}".format(number, place, batch)] = array
            self._check_size(subject)
        if name is None and self.job["like"] is not None:
            self._call_compiled(inputs.batches[0])
        return {
            "signature": name,
            "number": number,
            "batches": len(inputs.batches),
            "inputs": [
                {"name": entry["name"], "dtype": entry["dtype"]}
                for entry in inputs.report["inputs"]
            ],
            "outputs": [
                {"name": output_name, "dtype": dtype} for output_name, dtype in zip(names, dtypes)
            ],
        }

    def _check_size(self, subject: str) -> None:
        """Raise Refused if the outputs need more of a job's memory than the comparison allows."""
        size = sum(array.nbytes for array in self.arrays.values())
        if self.job["memory"] is not None and size > self.job["memory"]["bytes"] // OUTPUT_SHARE:
            text = "the outputs of {} have {:,} bytes or more"
            raise Refused("memory", text.format(subject, size))

    def _inputs(self, call: Mapping[str, Any], subject: str) -> FedInputs:
        """
        Return the inputs of a call: from the file of an earlier run if there is one, else drawn and
        saved.
        """
        expected_inputs: Sequence[Mapping[str, str]] | None = call["inputs"]
        file = os.path.join(self.job["inputs"], "inputs.{}.npz".format(call["number"]))
        options = {
            "file": file if expected_inputs is not None else None,
            "save": file if expected_inputs is None else None,
            "batches": BATCHES,
            "batch_size": self.job["batch_size"],
            "seed": SEED,
            "pads_every_way": True,
            "like": expected_inputs,
        }
        try:
            if call["signature"] is None:
                return self._feed_model(options)
            signature = self.signatures[call["signature"]]
            return feed_known_signature(self.library, signature, self.model, options, self.size)
        except Refused as error:
            if error.code != "not-callable":
                raise Refused(error.code, "{}: {}".format(subject, error)) from error
            raise _not_callable(subject, error.__cause__) from error

    def _feed_model(self, options: Mapping[str, Any]) -> FedInputs:
        """
        Return inputs for the model; without information on them, those of its only signature with
        one input.
        """
        try:
            return feed_model(self.library, self.model, options)
        except Refused as error:
            spec = model_calls.only_input(self.signatures)
            if error.code != "no-inputs" or spec is None:
                raise
            # where Keras 2 has the inputs of a model that was called
            self.model._saved_model_inputs_spec = spec  # noqa: SLF001
            return feed_model(self.library, self.model, options)

    def _outputs(self, signature: str | None, tensors: Any, subject: str) -> Any:
        """Return the outputs of the model, or of a signature, for a batch."""
        try:
            if signature is None:
                return model_calls.call(self.model, tensors)
            return self.signatures[signature](**tensors)
        except self.library.tf.errors.ResourceExhaustedError:
            raise
        except (ValueError, TypeError, self.library.tf.errors.InvalidArgumentError) as error:
            if _NO_KERNEL in str(error):
                raise _not_computable(subject, error) from error
            raise _not_callable(subject, error) from error
        except self.library.tf.errors.OpError as error:
            raise _not_computable(subject, error) from error

    def _call_compiled(self, tensors: Any) -> None:
        """
        Call the model as one graph, for batches of any size, as ``model.predict`` does. TensorFlow
        replaces ops of a graph, and the new op may lack a kernel: for an unknown number of rows,
        TF 2.15 fuses a LayerNormalization under mixed_float16 into an op without float16 on CPUs.
        """
        library, subject = self.library, "model.predict of " + self.which
        if not library.traces or getattr(self.model, "run_eagerly", False):
            return
        has_rows = all(shape[:1] == [None] for shape in _declared_shapes(self.model))
        try:
            library.tf.function(
                functools.partial(model_calls.call, self.model),
                input_signature=_specs(library.tf, tensors) if has_rows else None,
            )(tensors)
        except library.tf.errors.ResourceExhaustedError:
            raise
        except library.tf.errors.OpError as error:
            raise _not_computable(subject, error) from error
        except (ValueError, TypeError) as error:
            raise _not_callable(subject, error) from error


def _declared_shapes(model: Any) -> list[list[int | None]]:
    """Return the declared shapes of a model's inputs; empty if the model declares none."""
    return [list(tensor.shape) for tensor in getattr(model, "inputs", None) or []]


def _specs(tf: Any, tensors: Any) -> list[Any] | None:
    """
    Return the signature of a function of tensors with any number of rows; None for ragged and
    sparse tensors, and for those without rows.
    """
    if not all(isinstance(t, tf.Tensor) and t.shape.rank for t in tf.nest.flatten(tensors)):
        return None
    spec = tf.nest.map_structure(lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), tensors)
    return [spec]


def _array(tensor: Any, subject: str) -> tuple[str, Any]:
    """Return a tensor's dtype and its values."""
    if (
        not hasattr(tensor, "dtype")
        or "Ragged" in type(tensor).__name__
        or "Sparse" in type(tensor).__name__
    ):
        raise Refused(
            "outputs",
            ("{}: an output is of type {}, which cannot be compared").format(
                subject, type(tensor).__name__
            ),
        )
    dtype = dtype_name(tensor)
    return dtype, to_array(tensor) if dtype == "bfloat16" else values_of(tensor)


def _not_computable(subject: str, error: BaseException) -> Refused:
    """Return the refusal of a model that this device, or this build of TensorFlow, cannot run."""
    return Refused(
        "not-computable", "{} cannot run on this device: {}".format(subject, sentence(error))
    )


def _not_callable(subject: str, error: BaseException | None) -> Refused:
    text = "{} cannot be called with inputs of its declared shapes: {}"
    return Refused(
        "not-callable",
        text.format(subject, sentence(error) if error is not None else "no inputs were tried"),
    )
