"""``tune``: finds the layers that must stay in float32, and writes the model with them."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from msgspec.structs import asdict, replace

from policytool.commands import migrate, quantized_model, tensorflow, tune_run
from policytool.commands.check_run import float32_layers, measure
from policytool.commands.migrate import MigrateRequest, Status
from policytool.commands.migration_preview import check_migratable
from policytool.commands.tune_run import TrialRuns, check_options, readable_source
from policytool.formats import discovery
from policytool.formats.writing import check_output
from policytool.migration import planning
from policytool.numerics.check_results.checks import CheckNote
from policytool.numerics.check_results.verdicts import NotComparable
from policytool.numerics.tuning import candidate_layers
from policytool.numerics.tuning.candidate_layers import candidates as policy_candidates
from policytool.numerics.tuning.results import NO_EVIDENCE, Ending, Split, TunedLayer, Tuning
from policytool.numerics.tuning.search import Hints, Search, Trials
from policytool.numerics.verdicts.safety import least_samples
from policytool.numerics.workers import Worker
from policytool.releases.policy import GLOBAL_SOURCE
from policytool.support import steps
from policytool.support.errors import ModelFileError, WorkerError
from policytool.support.files.remote_path import local
from policytool.support.processes import crash_guard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from policytool.commands.arguments.shared import TensorFlowArguments
    from policytool.commands.destinations import Destination
    from policytool.commands.migrate import Migration
    from policytool.commands.tune_run import TuneOptions
    from policytool.formats.discovery import Input
    from policytool.migration.planning.options import Options
    from policytool.model.loaded_model import LoadedModel
    from policytool.numerics.check_results.checks import Check
    from policytool.numerics.check_sides import CheckSource
    from policytool.numerics.hand_over import HandOver
    from policytool.numerics.tensorflow_run import TensorFlowTools
    from policytool.numerics.tuning.candidate_layers import Candidates
    from policytool.numerics.tuning.results import LayerEvidence, Trial
    from policytool.support.files.remote_path import AnyPath

    Report = Callable[[str], None]
    """Called with the progress of the search: the number of trials and the best set."""


_LOST: Final = "could not be tuned: the worker process {how}"


def tune(
    model: Input,
    options: TuneOptions,
    tools: TensorFlowTools,
    report: Report = lambda _: None,
) -> Tuning:
    """
    Find the layers that must stay in float32, so that a model meets an objective.

    Ctrl-C ends the search, and the best set so far is returned.

    :raises ModelFileError: if a file cannot be read, changed or run.
    :raises UsageError: if options contradict the model or each other.
    :raises WorkerError: if the child process fails.
    """
    with tools.hand_over() as hand_over:
        source = readable_source(model, options, hand_over)
        candidates = find_candidates(source, options, tools, hand_over)
        with TrialRuns(source, candidates, options, tools, hand_over) as runs:
            return _search(runs, report)


def _search(runs: TrialRuns, report: Report) -> Tuning:
    """Search the layers to keep in float32, and return the result."""
    start = time.monotonic()
    source, candidates, options = runs.source, runs.candidates, runs.options
    record = (
        tune_run.record_of(options.record, source.copy, candidates, options)
        if options.record is not None
        else None
    )
    known = record.read() if record is not None else ()

    def run(kept: frozenset[str]) -> Trial:
        best = search.best
        smallest = f", {len(best.kept)} layers in the best set" if best is not None else ""
        report(f"trial {len(trials.made) + 1}{smallest}")
        trial = runs.run(kept)
        if record is not None:
            record.write((*trials.made, trial))
        return trial

    report("reference")
    first = [runs.run(frozenset())]
    if options.candidate.quantizes or first[0].failure is not None:
        first.append(runs.measure(frozenset(candidates.paths)))
    notes = _about_outputs(source.input, runs.not_comparable)
    check, diagnosis_notes = _diagnosis(
        source.input, candidates, options, runs.tools, runs.hand_over
    )
    trials = Trials(run, options.budget, (*known, *first), start=start)
    search = Search(_hints(check, candidates, options.objective.max_change), trials)
    ending = _run_to_end(search)
    seconds = time.monotonic() - start
    notes = (*notes, *diagnosis_notes)
    return _tuning(search, ending, runs, check, notes=notes, resumed=len(known), seconds=seconds)


def _run_to_end(search: Search) -> Ending:
    """Run a search, and return why it ended."""
    try:
        return search.run()
    except KeyboardInterrupt:
        crash_guard.finish()
        return Ending.INTERRUPTED


def tune_and_write(
    model: Input,
    options: TuneOptions,
    destination: Destination,
    tools: TensorFlowTools,
    report: Report = lambda _: None,
) -> tuple[Tuning, Migration | None]:
    """
    Return the search, and the result of writing the model with the best set; None if no set was
    found.

    :raises ModelFileError: if a file cannot be read, changed, run or written.
    :raises UsageError: if options contradict the model or each other, or the output is invalid.
    :raises WorkerError: if the child process fails.
    """
    if lost_file := crash_guard.split():
        raise lost_file
    crash_guard.set_next_file(model.display_path, _LOST)
    with tools.hand_over() as hand_over:
        source = readable_source(model, options, hand_over)
        # a search may take hours, so check first that its result can be written
        target = _target(source, options, destination, tools)
        if destination.write and target is not None:
            check_output(
                model.local_path,
                local(target),
                model.display_path,
                overwrite=destination.overwrite,
            )
        candidates = find_candidates(source, options, tools, hand_over)
        with TrialRuns(source, candidates, options, tools, hand_over) as runs:
            tuning = _search(runs, report)
            if not tuning.passed or tuning.best is None:
                return tuning, None
            report("writing")
            if options.candidate.quantizes:
                return tuning, quantized_model.write(runs, tuning.best, destination)
            kept = frozenset(tuning.best.kept)
            return tuning, _write(source, candidates, kept, destination, tools)


def tune_file(
    model: str | Input,
    options: TuneOptions,
    destination: Destination,
    process: TensorFlowArguments,
) -> tuple[Tuning, Migration | None]:
    """Do the same as :func:`tune_and_write`, with a child process for this call only."""
    source = discovery.named_input(model)
    with Worker(tensorflow.interpreter(process)) as worker:
        tools = tensorflow.tools(process, worker)
        try:
            return tune_and_write(source, options, destination, tools)
        except WorkerError as error:
            error.path = source.display_path
            raise


def _write(
    source: CheckSource,
    candidates: Candidates,
    kept: frozenset[str],
    destination: Destination,
    tools: TensorFlowTools,
) -> Migration:
    """Write the model with the best set of layers in float32."""
    check_migratable(source.document)
    loaded = source.copy.original or _loaded(source)
    retrace = loaded.document.format == "savedmodel" and bool(loaded.document.nodes)
    request = MigrateRequest(
        options=replace(source.copy.migration(candidates.keeping(kept)), retrace=retrace),
        destination=destination,
        details=False,
    )
    with steps.budget(source.input.display_path):
        return migrate.migrate_loaded(
            loaded, source.input.local_path, request, tools if retrace else None
        )


def _target(
    source: CheckSource, options: TuneOptions, destination: Destination, tools: TensorFlowTools
) -> AnyPath | None:
    """
    Return the path of the output; None if nothing would change.

    :raises ModelFileError: if the model cannot be written.
    """
    if options.candidate.quantizes:
        return quantized_model.target(source, destination, str(options.candidate.to))
    with steps.budget(source.input.display_path):
        candidates = policy_candidates(_loaded(source), options.candidate)
    planned = _write(source, candidates, frozenset(), replace(destination, write=False), tools)
    if planned.status is Status.BLOCKED:
        refusal = planned.plan.refusals[0]
        raise ModelFileError(source.input.display_path, refusal.code, refusal.message)
    return planned.target


def find_candidates(
    source: CheckSource, options: TuneOptions, tools: TensorFlowTools, hand_over: HandOver
) -> Candidates:
    """
    Return the layers among which a search selects those that stay in float32.

    :raises UsageError: if the options contradict the model, or no layer would be converted.
    :raises ModelFileError: if the model cannot be changed in this way.
    :raises WorkerError: if the child process fails.
    """
    if options.candidate.quantizes:
        return quantized_model.candidates(source, options, tools, hand_over)
    with steps.budget(source.input.display_path):
        return policy_candidates(_loaded(source), options.candidate)


def _loaded(source: CheckSource) -> LoadedModel:
    assert source.loaded is not None  # noqa: S101  # readable_source() checked it
    return source.loaded


def _about_outputs(model: Input, why: NotComparable | None) -> tuple[CheckNote, ...]:
    """
    Return a note if all outputs are constant.

    :param why: why no output is comparable; None if an output is
    :raises ModelFileError: if no output has a finite value.
    """
    if why is None:
        return ()
    if why is NotComparable.NOT_FINITE:
        raise ModelFileError(
            model.display_path,
            "nothing-compared",
            "returns only NaN or infinity in float32 for these inputs, so there is nothing to "
            "compare; specify other inputs with --inputs",
        )
    message = (
        "all outputs are constant in float32 for these inputs, so the result says little; specify "
        "other inputs with --inputs"
    )
    return (CheckNote(code="constant-outputs", message=message),)


def _diagnosis(
    model: Input,
    candidates: Candidates,
    tune_options: TuneOptions,
    tools: TensorFlowTools,
    hand_over: HandOver,
) -> tuple[Check | None, tuple[CheckNote, ...]]:
    """Return the check with every candidate converted; None and a note if it cannot run."""
    options = replace(
        check_options(tune_options, candidates.keeping(frozenset())),
        diagnosis=True,
        sensitivity=True,
        gradients=False,
        probes_overflow=False,
    )
    try:
        return measure(model, None, options, tools, hand_over).check, ()
    except WorkerError as error:
        if error.ended:
            raise
        message = f"the layers could not be ranked before the search: {error}"
        return None, (CheckNote(code=error.code, message=message),)


def _hints(check: Check | None, candidates: Candidates, max_change: float) -> Hints:
    """Return what a diagnosis suggests about the layers to try first."""
    paths = candidates.paths
    return Hints(
        candidates=paths,
        groups=candidate_layers.groups(paths),
        rankings=tuple(candidate_layers.rankings(check, paths)) if check is not None else (),
        rows_needed=least_samples(max_change),
    )


def _tuning(
    search: Search,
    ending: Ending,
    runs: TrialRuns,
    check: Check | None,
    *,
    notes: tuple[CheckNote, ...],
    resumed: int,
    seconds: float,
) -> Tuning:
    """Return the result of a search for reports."""
    best, candidates = search.best, runs.candidates
    is_quantized = candidates.options.quantizes
    measured = candidate_layers.evidence(check, candidates.paths) if check is not None else {}
    decided = candidate_layers.decided_calls(check, candidates.paths) if check is not None else {}
    best_or_closest = best or search.closest
    assert runs.last is not None  # noqa: S101  # the first trial was run
    computing_layers = (
        candidate_layers.converted_model(
            _loaded(runs.source), candidates.keeping(frozenset(best_or_closest.kept))
        ).computing_layers
        if best_or_closest is not None and not is_quantized
        else ()
    )
    tuning = Tuning(
        policy=candidates.options.to or "",
        objective=runs.options.objective,
        reference=runs.side(),
        device=runs.last.device,
        inputs=runs.last.inputs,
        versions=runs.versions,
        split=Split.SHARED
        if search.uses_validation and runs.split is Split.BATCHES
        else runs.split,
        layers=tuple(
            _layer(
                path,
                search,
                best,
                candidates,
                measured.get(path, NO_EVIDENCE),
                decides=decided.get(path, ()),
            )
            for path in candidates.paths
        ),
        fixed=candidates.fixed,
        trials=search.trials.made,
        resumed=resumed,
        best=best,
        closest=search.closest,
        metric=runs.metrics.get(frozenset(best_or_closest.kept))
        if best_or_closest is not None
        else None,
        options=_options(runs, best.kept) if best is not None and not is_quantized else None,
        ending=ending,
        is_minimum=search.is_minimum,
        margin=search.margin,
        seconds=seconds,
        policies=dict(Counter(layer.policy or GLOBAL_SOURCE for layer in computing_layers)),
        float32_layers=float32_layers(computing_layers, candidates.options.to),
        seed=runs.options.seed,
        notes=notes,
        connected_layers=_loaded(runs.source).connected_layers,
        saved_bytes=candidates.saved_bytes,
    )
    if is_quantized:
        return tuning
    return replace(
        tuning,
        options_by_count={point.converted: _options(runs, point.kept) for point in tuning.curve},
    )


def _options(runs: TrialRuns, kept: Iterable[str]) -> Options:
    """Return the options of ``migrate`` that write the model with these layers in float32."""
    candidates = runs.candidates
    policies = candidates.policies(frozenset(kept))
    loaded = _loaded(runs.source)
    return runs.source.copy.migration(planning.with_layers(loaded, candidates.options, policies))


def _layer(
    path: str,
    search: Search,
    best: Trial | None,
    candidates: Candidates,
    measured: LayerEvidence,
    *,
    decides: tuple[str, ...],
) -> TunedLayer:
    """Return a layer with the trials and measurements that concern it."""
    kept = best is not None and path in best.kept
    trial_without_layer = None
    if best is not None and kept:
        set_kept = frozenset(best.kept)
        trial_without_layer = search.trials.known(set_kept - {path}) or search.failure(
            set_kept, frozenset({path})
        )
    trial_with_only_layer = search.trials.known(frozenset(candidates.paths) - {path})
    return TunedLayer(
        path=path,
        class_name=candidates.classes[path],
        kept=kept,
        rule=candidates.rules.get(path),
        **asdict(measured),
        excess_if_converted=trial_without_layer.largest_excess
        if trial_without_layer is not None
        else None,
        excess_by_itself=trial_with_only_layer.largest_excess
        if trial_with_only_layer is not None
        else None,
        decides=decides,
    )
