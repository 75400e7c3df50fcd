"""
The jobs of ``migrate`` for the child process with TensorFlow: re-exporting a model, and computing
predictions for a comparison.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping  # noqa: TC003  # for the codec
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from policytool.formats import format_detection
from policytool.formats.edits import EditKind, WriteOptions
from policytool.migration import planning
from policytool.migration.plan import Note, NoteSeverity, Refusal, planned_model
from policytool.migration.planning.options import Options
from policytool.model import custom_classes, presets, reading, untrusted_code
from policytool.numerics.environments import best_release, nearest_release
from policytool.numerics.hand_over import HandOver
from policytool.numerics.predictions import (
    PredictionComparison,
    PredictionSide,
    compare_predictions,
    converted_tolerance,
    rewritten_tolerance,
)
from policytool.numerics.reexport import ReexportComparison  # noqa: TC001  # for the codec
from policytool.numerics.verification import (
    disagreeing_release,
    format_obstacle,
    installed_libraries,
    not_failing,
    size_obstacle,
    weights_obstacle,
)
from policytool.numerics.workers import memory_limit
from policytool.releases.layer_classes import layer_facts
from policytool.releases.releases import get
from policytool.support.errors import BundleError, ModelFileError, PolicytoolError, WorkerError
from policytool.support.files.remote_path import local

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from policytool.formats.edits import Counted
    from policytool.formats.writing import Output, OutputPlace
    from policytool.migration.plan import Plan
    from policytool.model.loaded_model import LoadedModel
    from policytool.model.model import Model
    from policytool.numerics.hand_over import PrivateCopy
    from policytool.numerics.verification import InstalledLibraries
    from policytool.numerics.workers import MemoryLimit, Worker
    from policytool.support.files.atomic import DirectoryDraft
    from policytool.support.files.remote_path import AnyPath

_FIRST_WITH_NAMES = (2, 5)
"""The first TensorFlow release that reads a policy such as mixed_float16 from its name."""

_ROWS: Final = (None, 3, 1)
"""Batch sizes to try, until memory suffices; None is the usual size."""

_NOT_COPIED: Final = frozenset({"runs-code", "no-space"})
"""Error codes of a result that could not be copied, so that its predictions are unknown."""

_UNUSABLE: Final = frozenset({"not-loadable", "not-callable"})
"""Error codes of a file that a library cannot load, or cannot predict with."""


class TensorFlowTools(Struct, frozen=True, kw_only=True):
    """The child processes of a call of ``migrate``, and the options for their jobs."""

    worker: Worker
    target: Worker | None = None
    """The child that loads converted models; None if ``worker`` also loads them."""

    verify: bool | None = False
    """
    Whether to compare predictions; None to compare those of converted models if it is possible.
    """

    no_verify_reason: str | None = None
    """Why predictions are not compared although that is the default; None if they are."""

    libraries: tuple[InstalledLibraries | None, InstalledLibraries] | None = None
    """
    The libraries of the source's and the target's interpreter; None if they are unknown. The first
    is None if the release of the source depends on the file.
    """

    custom_objects: tuple[str, ...] = ()
    """``MODULE`` or ``MODULE:NAME``: modules that define the custom classes of models."""

    path: tuple[str, ...] = ()
    """Directories in which the child looks for these modules, after its own directories."""

    trust: bool = False
    """Whether code in a file may run."""

    def hand_over(self) -> HandOver:
        """Return a new private directory for the copies that the child loads."""
        return HandOver(trust=self.trust, custom_objects=bool(self.custom_objects))

    def decide_verification(self, target: str | None) -> TensorFlowTools:
        """
        Return the tools for one call. In the result, ``verify`` is None only if the libraries that
        load the source and the target are installed.
        """
        if target is not None and self.target is not None:
            self.target.fit(lambda: nearest_release(target))
        if self.verify is not None:
            return self
        if target is None:
            return replace(self, verify=False)
        source = None if self.worker.is_fitted else installed_libraries(self.worker.python)
        other = self.target.python if self.target is not None else self.worker.python
        loader = (
            source
            if source is not None and other == self.worker.python
            else installed_libraries(other)
        )
        missing_reason = loader.lack(get(target).family)
        if missing_reason is not None:
            return replace(self, verify=False, no_verify_reason=missing_reason)
        return replace(self, libraries=(source, loader))


class Reexport(Struct, frozen=True, kw_only=True):
    """How a model was re-exported."""

    held: ReexportComparison
    versions: Mapping[str, str]
    traces: bool
    """Whether the result contains traced functions; not if the original contains none."""

    signatures: tuple[str, ...]
    optimizer: Mapping[str, int] | None
    """
    How many values of the optimizer state were restored, and how many were lost; None without an
    optimizer.
    """

    load_under: str | None = None
    """
    The global policy to load the model under, because custom classes in it create layers; None if
    it has no such classes.
    """

    def notes(self) -> Iterator[Note]:
        """Yield the notes about the re-export."""
        warning = partial(Note, severity=NoteSeverity.WARNING)
        if not self.traces:
            yield Note(
                severity=NoteSeverity.NOTE,
                code="no-traces",
                message="neither the file nor the result contains traced functions "
                "(save_traces=False), so every release builds the layers from their configs",
            )
        if self.load_under not in {None, "float32"}:
            yield warning(
                code="load-under-policy",
                message="custom classes in the model build layers with the global policy; call "
                f"mixed_precision.set_global_policy({self.load_under!r}) before you load the model",
            )
        yield from (
            warning(
                code="library-decides",
                message=f"{text}: the layer that contains it sets this policy, but the release "
                "that wrote the file set a different one",
            )
            for text in self.held.other_policies
        )
        yield from (
            warning(code="signature-dtype", message=f"{text}; callers receive this dtype")
            for text in self.held.retyped
        )
        if self.optimizer is not None and self.optimizer["lost"]:
            yield warning(
                code="optimizer-state-lost",
                message=f"{self.optimizer['lost']} values of the optimizer state do not match the "
                "optimizer that the library builds, so they are reset",
            )


class ToleranceMissedError(PolicytoolError):
    """Predictions differ by more than the tolerance, so nothing is written."""

    def __init__(self, comparison: PredictionComparison) -> None:
        super().__init__("; ".join(comparison.missed))
        self.comparison = comparison


@dataclass(kw_only=True, slots=True)
class TensorFlowRun:
    """The jobs for one file, and their results."""

    plan: Plan
    loaded: LoadedModel
    source: AnyPath
    """The path of the file. It must be local if a job needs it."""

    tools: TensorFlowTools
    retraced: Reexport | None = None
    comparison: PredictionComparison | None = None
    after: LoadedModel | None = field(default=None)
    obstacle: str | None = None
    """Why predictions could not be compared, if the user did not request the comparison."""

    memory_limit: int | None = None
    """The default memory limit of the comparison in bytes; None if the user set a limit."""

    _predicts_with_result: bool = False

    def __post_init__(self) -> None:
        """Select the release of the source, if that is left to the file."""
        self.tools.worker.fit(lambda: best_release(self.loaded))

    def refusal(self) -> Refusal | None:
        """
        Return why TensorFlow must not load the file: it would run untrusted code. Of a preset, only
        the copy without the task is loaded, and checked.
        """
        if self.tools.trust or presets.is_preset(self.loaded.document):
            return None
        reasons = untrusted_code.reasons_not_to_run(self.loaded, compiles=self.plan.retrace)
        message = untrusted_code.refusal(reasons, custom_objects=bool(self.tools.custom_objects))
        return Refusal(code="runs-code", message=message) if message is not None else None

    def reexport(self, _: OutputPlace) -> Output[DirectoryDraft]:
        """
        Return the output whose draft the child fills with the re-exported model.

        Its ``fill`` raises :class:`policytool.support.errors.WorkerError` if the child fails. Its
        ``compare`` raises :class:`policytool.support.errors.ModelFileError` if the model differs
        from the original or the plan.
        """
        from policytool.formats.writing import Output
        from policytool.numerics import reexport
        from policytool.support.files.atomic import DirectoryDraft

        planned = planned_model(self.loaded, replace(self.plan, casts=()))
        result: dict[str, Any] = {}

        def fill(draft: DirectoryDraft) -> Counted:
            with self.tools.hand_over() as hand_over:
                source = hand_over.take(local(self.source), self.plan.path, compiles=True)
                model = hand_over.folder() / "result"
                job = reexport.reexport_job(self.loaded, planned, source, model)
                result.update(self._run_job(job, source))
                self._normalize_policies(model, result["versions"])
                shutil.copytree(model, draft.create(), dirs_exist_ok=True)
            return {}

        return Output(
            draft=DirectoryDraft,
            fill=fill,
            compare=lambda draft: self._note_reexport(planned, draft.path, result),
        )

    def _note_reexport(self, planned: LoadedModel, draft: Path, result: Mapping[str, Any]) -> None:
        """
        Record how a model was re-exported, and the result of its comparison.

        :raises ModelFileError: if the model differs from the original or the plan.
        """
        from policytool.numerics import reexport

        self.after = after = _load(draft, self.plan.path)
        try:
            compared = reexport.compare_result(
                self.loaded, planned, after, local(self.source), draft
            )
        except BundleError as error:
            raise ModelFileError(self.plan.path, error.code, str(error)) from error
        if isinstance(compared, str):
            raise ModelFileError(
                self.plan.path,
                "retrace-differs",
                f"was re-exported, but differs from the plan: {compared}; nothing was written",
            )
        has_custom_classes = any(
            custom_classes.is_opaque(site) and not layer_facts(site.class_name).is_opaque
            for site in after.placed.sites
        )
        self.retraced = Reexport(
            held=compared,
            versions=result["versions"],
            traces=result["traces"],
            signatures=tuple(result["signatures"]),
            optimizer=result["optimizer"],
            load_under=after.layers[0].policy if has_custom_classes else None,
        )

    def verifies(self) -> bool:
        """Return whether to compare predictions; if not, set ``obstacle`` to the reason, if any."""
        if self.tools.verify is not None:
            return self.tools.verify
        distrusted = self.refusal()
        source = self.tools.libraries[0] if self.tools.libraries is not None else None
        self.obstacle = (
            format_obstacle(self.plan.format, self.plan.written_format)
            or weights_obstacle(self.loaded.document)
            or size_obstacle(self.loaded.model)
            or (source.lack(self.loaded.family) if source is not None else None)
            or (self._advice(distrusted) if distrusted is not None else None)
        )
        return self.obstacle is None

    def _advice(self, distrusted: Refusal) -> str:
        """Return why the files do not run, with all options that the code of a Lambda needs."""
        conversion, libraries = self.plan.conversion, self.tools.libraries
        if (
            conversion is None
            or not (conversion.functions or conversion.unknown_functions)
            or libraries is None
        ):
            return distrusted.message
        text = distrusted.message
        if libraries[0] is libraries[1]:
            text += (
                f", and then also --python source={best_release(self.loaded)}, because bytecode "
                "runs only in the Python version that wrote it"
            )
        if conversion.unknown_functions and not self.tools.custom_objects:
            text += (
                ", and --custom-objects MODULE:NAME, where NAME is a dict of the functions whose "
                f"code the report does not show ({', '.join(conversion.unknown_functions)})"
            )
        return text

    def verify(self, path: Path) -> None:
        """
        Compare the predictions of a result with the original's.

        If the user did not request the comparison, a failure of the child process is recorded as
        the obstacle. So are different predictions of a release that is known to compute
        differently. A result that the target release cannot use is always an error.

        :raises ToleranceMissedError: if the predictions differ by more than the tolerance.
        :raises ModelFileError: if the result has other outputs than the original.
        :raises WorkerError: if the child process cannot compare them.
        """
        try:
            self._compare(path)
        except ToleranceMissedError as missed:
            disagreement = self._disagreeing_release(missed.comparison)
            if self.tools.verify or disagreement is None:
                raise
            self.comparison, self.obstacle = None, disagreement
        except ModelFileError as error:
            if self.tools.verify or error.code not in _NOT_COPIED:
                raise
            self.obstacle = error.message
        except WorkerError as error:
            if self.tools.verify or self._is_unusable_in_target(error):
                raise
            self.obstacle = str(error)

    def _disagreeing_release(self, comparison: PredictionComparison) -> str | None:
        """Return why predictions may differ: a release that is known to compute differently."""
        conversion = self.plan.conversion
        if conversion is None:
            return None
        from policytool.migration.convert import decoding
        from policytool.migration.convert.conversion_plan import agreeing_releases

        writer = self.loaded.origins[-1].id
        sources = not_failing(
            agreeing_releases(decoding.decode(self.loaded), writer), self.loaded.loaders
        )
        targets = not_failing(conversion.agreeing, self.plan.loaders_after)
        return disagreeing_release(
            comparison.versions, sources, side="source"
        ) or disagreeing_release(comparison.versions_after or {}, targets, side="target")

    def _is_unusable_in_target(self, error: WorkerError) -> bool:
        """
        Return whether the result fails in the target release itself. This is unknown if the model
        has custom classes, because the child lacks their code.
        """
        conversion, libraries = self.plan.conversion, self.tools.libraries
        return (
            self._predicts_with_result
            and error.code in _UNUSABLE
            and not self.tools.custom_objects
            and not custom_classes.names(self.loaded.sites)
            and conversion is not None
            and libraries is not None
            and libraries[1].has(get(conversion.target))
        )

    def _compare(self, path: Path) -> None:
        """
        Compare the predictions of a result with the original's.

        The target library loads a converted result in a separate process. The child processes load
        private copies of both files.

        :raises ToleranceMissedError: if the predictions differ by more than the tolerance.
        :raises ModelFileError: if the outputs of the result do not match those of the original.
        :raises WorkerError: if a child process fails.
        """
        with self.tools.hand_over() as hand_over:
            result = replace(
                hand_over.take(path, self.plan.path, is_own=True),
                functions=hand_over.functions(self.plan.conversion),
            )
            self.after = after = result.model
            source = hand_over.take(local(self.source), self.plan.path)
            weights = self.loaded.document.weights
            sides = self._sides(
                source,
                result,
                hand_over.copy_weights(local(weights.path)) if weights is not None else None,
            )
            folder = hand_over.folder()
            answers = self._predict_in_memory(sides, folder)
            self.comparison = compare_predictions(
                sides,
                answers,
                folder,
                self._tolerance(after.model),
                keeps_dtypes=sides[1].is_converted and not self._changes_numerics,
            )
        if self.comparison.missed:
            raise ToleranceMissedError(self.comparison)

    def _sides(
        self, source: PrivateCopy, result: PrivateCopy, weights: PrivateCopy | None
    ) -> tuple[PredictionSide, PredictionSide]:
        """Return the original and the result, each with the worker that runs it."""
        conversion, family = self.plan.conversion, self.loaded.family
        before = PredictionSide(
            which="the original" if conversion is None else "the source",
            copy=source,
            family=family,
            model=self.loaded.model,
            is_converted=conversion is not None,
            config=None if weights is None else self.loaded.document.config,
            weights=weights,
        )
        if conversion is not None:
            from policytool.migration.convert.target import Target

            family = Target(loader=conversion.target, container=conversion.content.container).family
        return before, replace(
            before,
            which="the result",
            copy=result,
            family=family,
            model=result.model.model,
            config=None,
            weights=None,
        )

    def _predict_in_memory(
        self, sides: tuple[PredictionSide, PredictionSide], folder: Path
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """
        Return the answer for each side. If the child runs out of memory, predict again with fewer
        rows.
        """
        is_unlimited = self.tools.verify is not None or self.tools.worker.has_memory_limit
        limit = (
            None if is_unlimited else memory_limit(max(side.model.summary.bytes for side in sides))
        )
        self.memory_limit = limit.bytes if limit is not None else None
        for rows in _ROWS:
            try:
                return self._predict(sides, folder, rows, limit)
            except WorkerError as error:
                for worker in (self.tools.worker, self.tools.target):
                    if error.lacked_memory and worker is not None:
                        worker.close()  # a child may keep its memory; the next job starts a new one
                if not error.lacked_memory or rows == _ROWS[-1]:
                    raise
        raise AssertionError  # the last number of rows returns or raises

    def _predict(
        self,
        sides: tuple[PredictionSide, PredictionSide],
        folder: Path,
        rows: int | None,
        limit: MemoryLimit | None,
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """
        Return the answer for each side. Files that different libraries load have separate child
        processes.
        """
        first, second = sides
        names = ("source", "target") if second.is_converted else ("", "")
        self._predicts_with_result = False
        before = self._run_job(
            first.job(folder, rows=rows, memory=limit), first.copy, side=names[0]
        )
        self._predicts_with_result = True
        return before, self._run_job(
            second.job(folder, before["calls"], rows=rows, memory=limit),
            second.copy,
            self.tools.target if second.is_converted else None,
            side=names[1],
        )

    def _tolerance(self, after: Model) -> float:
        before = self.loaded.model
        if self.plan.conversion is not None:
            return converted_tolerance(before, after, numerics=self._changes_numerics)
        if not self.plan.retrace and not self._changes_numerics:
            return 0.0
        return rewritten_tolerance(before, after, reexported=self.plan.retrace)

    @property
    def _changes_numerics(self) -> bool:
        return bool(self.plan.casts) or any(
            edit.kind is EditKind.NUMERICS for edit in self.plan.edits
        )

    def _run_job(
        self,
        job: Mapping[str, Any],
        copy: PrivateCopy,
        worker: Worker | None = None,
        *,
        side: str = "",
    ) -> Mapping[str, Any]:
        """Run a job with the user's options for a copy, and return the answer."""
        return (worker or self.tools.worker).run(
            {
                **job,
                "custom_objects": list(self.tools.custom_objects),
                "path": list(self.tools.path),
                "registered": custom_classes.names(self.loaded.sites),
                "needed": [] if self.tools.trust else untrusted_code.needed_names(copy.model),
                "trust": self.tools.trust,
                "release": self._release_of_source() if side == "source" else None,
                "has_source": not self.tools.worker.is_for_both or self.tools.worker.is_fitted,
            },
            side=side,
        )

    def _release_of_source(self) -> str | None:
        """Return the release that loads the original; None if all are known to fail."""
        return next(iter(not_failing([best_release(self.loaded)], self.loaded.loaders)), None)

    def _normalize_policies(self, model: Path, versions: Mapping[str, str]) -> None:
        """
        Write the policies of a result in the format of ``migrate``, so that migrating the result
        again changes nothing. Results of TF 2.4 and older stay unchanged, because these releases
        read only their own format.
        """
        major, minor = (int(part) for part in versions["tensorflow"].split(".")[:2])
        if (major, minor) < _FIRST_WITH_NAMES:
            return
        again = planning.plan(_load(model, self.plan.path), Options())
        if again.edits and not again.refusals:
            from policytool.formats import rewriting

            rewriting.write(
                model,
                model,
                rewriting.Changes(edits=again.edits),
                document_format=again.format,
                options=WriteOptions(in_place=True, backup=False, shown=self.plan.path),
            )


def count_casts(plan: Plan, loaded: LoadedModel, source: Path) -> Counted:
    """
    Return how the casts of a plan change the values of a model that is re-exported.

    :raises ModelFileError: if the checkpoint cannot be read.
    """
    from policytool.numerics import reexport  # only re-exports need it

    try:
        return reexport.count_casts(loaded, source, plan.casts)
    except BundleError as error:
        raise ModelFileError(plan.path, error.code, str(error)) from error


def _load(path: Path, display_path: str) -> LoadedModel:
    return reading.load_model(format_detection.document(path, display_path))
