"""
Quantization for ``tune``: Keras quantizes and saves the model in the child process, and ``migrate``
adds the policies that Keras does not save.

A copy with all layers quantized is loaded before the search, which may take hours, and the copy
with the best set must predict as its trial did before it is written.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.commands.check_run import check_job, fit_release
from policytool.commands.destinations import check_target, container_of, target_of
from policytool.commands.migrate import Migration, Status
from policytool.commands.tune_run import check_options
from policytool.formats import writing
from policytool.formats.discovery import display_path
from policytool.formats.edits import WriteOptions
from policytool.migration import planning
from policytool.migration.plan import planned_model
from policytool.migration.planning.options import Options
from policytool.numerics import check_sides
from policytool.numerics.check_sides import PreparedSide
from policytool.numerics.tuning.candidate_layers import Candidates, quantizable
from policytool.support import steps
from policytool.support.errors import ModelFileError, UsageError, WorkerError
from policytool.support.files import atomic
from policytool.support.files.atomic import same_bytes
from policytool.support.files.remote_path import local

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from policytool.commands.destinations import Destination
    from policytool.commands.tune_run import TrialRuns, TuneOptions
    from policytool.formats.edits import Counted
    from policytool.migration.plan import Plan
    from policytool.numerics.check_sides import CheckSource
    from policytool.numerics.hand_over import HandOver, PrivateCopy
    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.tuning.results import Trial
    from policytool.support.files.remote_path import AnyPath

_CONTAINER: Final = "keras"
"""The file format of the output."""

_SAME: Final = 0.01
"""
The largest relative difference of the excess of the written model from that of its trial. Kernels
that add in another order may cause one.
"""


class _Saved(Struct, frozen=True, kw_only=True):
    """A model that Keras quantized and saved, with the policies that Keras did not save."""

    copy: PrivateCopy
    plan: Plan
    """The plan that added the policies."""

    layers: Sequence[Mapping[str, Any]]
    """The quantized layers, as the child process lists them."""

    @property
    def side(self) -> PreparedSide:
        """The model as the candidate of a trial."""
        loaded = self.copy.loaded
        assert loaded is not None  # noqa: S101  # Keras saves the config
        job = {"family": loaded.family, "policy": loaded.layers[0].policy, "how": "saved"}
        return PreparedSide(
            job={**job, "path": self.copy}, loaded=loaded, plan=self.plan, policy=None
        )


def candidates(
    source: CheckSource, options: TuneOptions, tools: TensorFlowTools, hand_over: HandOver
) -> Candidates:
    """
    Return the layers that Keras quantizes, as the candidates of a search. Make sure that Keras
    loads the model with all of them quantized.

    :raises ModelFileError: if Keras cannot quantize the model, or cannot load the result.
    :raises UsageError: if the options contradict the model, or leave nothing to quantize.
    :raises WorkerError: if the child process fails.
    """
    fit_release(tools, source)
    saved = _save(source, options.candidate, options, tools, hand_over)
    if not saved.layers:
        raise UsageError(
            f"no layer of {source.input.display_path} would be quantized under --to "
            f"{options.candidate.to}; remove --set"
        )
    try:
        tools.worker.run(_job(saved.side, source, options, tools))
    except WorkerError as error:
        if error.ended:
            raise
        raise ModelFileError(
            source.input.display_path,
            "not-quantizable",
            f"cannot be loaded after Keras quantizes and saves it: {error}",
        ) from error
    return quantizable(options.candidate, saved.layers)


def target(source: CheckSource, destination: Destination, mode: str) -> AnyPath:
    """
    Return the path of the output.

    :raises UsageError: if it is the input, or has the suffix of another file format.
    """
    output = destination.output
    other = None if destination.is_directory else container_of(output)
    if output is not None and other not in {None, _CONTAINER}:
        raise UsageError(
            f"-o {display_path(output)} has the suffix of another file format; quantized models "
            "are .keras files"
        )
    return target_of(source.input.path, mode, destination, several=False, container=_CONTAINER)


def write(runs: TrialRuns, best: Trial, destination: Destination) -> Migration:
    """
    Write the model with the layers of a trial unquantized, after it was loaded and measured again.

    :raises ModelFileError: if the file predicts differently, or cannot be written.
    :raises UsageError: if the output is not valid.
    :raises WorkerError: if the child process cannot load or run the file.
    """
    source, candidate = runs.source, runs.candidates.keeping(frozenset(best.kept))
    saved = _save(source, candidate, runs.options, runs.tools, runs.hand_over)
    place = target(source, destination, str(candidate.to))
    check_target(saved.plan, source.input.path, place, destination)
    migration = Migration(
        plan=saved.plan, status=Status.PLANNED, source=source.input.path, target=place
    )
    if not destination.write:
        return migration
    if not _is_same(runs.measure_side(saved.side, frozenset(best.kept)), best):
        raise ModelFileError(
            source.input.display_path,
            "write-differs",
            "was quantized and saved, but the file predicts differently from the trial of its set; "
            "nothing was written",
        )

    def fill(draft: atomic.Draft) -> Counted:
        atomic.copy_file(saved.copy.path, draft.path)
        return {}

    def compare(draft: atomic.Draft) -> None:
        writing.require_same(same_bytes(saved.copy.path, draft.path), "the file")

    written = writing.write_output(
        source.input.local_path,
        local(place),
        WriteOptions(overwrite=destination.overwrite, shown=source.input.display_path),
        lambda _: writing.Output(draft=atomic.Draft, fill=fill, compare=compare),
    )
    return replace(migration, status=Status.WRITTEN, written=written)


def _is_same(measured: Trial, best: Trial) -> bool:
    """Return whether two trials have the same excess on both halves of the inputs."""
    return math.isclose(measured.excess, best.excess, rel_tol=_SAME) and math.isclose(
        measured.validation or 0.0, best.validation or 0.0, rel_tol=_SAME
    )


def _save(
    source: CheckSource,
    candidate: Options,
    options: TuneOptions,
    tools: TensorFlowTools,
    hand_over: HandOver,
) -> _Saved:
    """
    Return the model that Keras quantizes and saves, with the policies that Keras does not save.

    :raises ModelFileError: if Keras cannot quantize or save the model.
    :raises WorkerError: if the child process ends.
    """
    folder = hand_over.folder()
    side = check_sides.prepare_side(source, candidate, (hand_over, folder))
    draft = folder / "saved.keras"
    try:
        answer = tools.worker.run({**_job(side, source, options, tools), "draft": str(draft)})
    except WorkerError as error:
        if error.ended:
            raise
        raise ModelFileError(source.input.display_path, error.code, str(error)) from error
    copy = hand_over.adopt(draft, source.input.display_path)
    assert copy.loaded is not None  # noqa: S101  # Keras saves the config
    with steps.budget(source.input.display_path):
        plan = planning.plan(copy.loaded, Options())
        copy = hand_over.change(copy, planned_model(copy.loaded, plan), plan, hand_over.folder())
    return _Saved(copy=copy, plan=plan, layers=answer["layers"])


def _job(
    side: PreparedSide, source: CheckSource, options: TuneOptions, tools: TensorFlowTools
) -> dict[str, Any]:
    """Return the job that loads a side, and quantizes and saves it if this is requested."""
    job = check_job((side, side), source, check_options(options, options.candidate), tools)
    return {**job, "job": "quantize", "draft": None}
