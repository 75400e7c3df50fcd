"""What ran: the two models, on which device, with which inputs; each fact with its label."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.inputs import InputKind
from policytool.reports._words import bytes_words
from policytool.reports.checks import _kept_scopes as kept_scopes
from policytool.reports.figures import many
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import Check, CheckRun, CheckSide
    from policytool.numerics.check_results.devices import TensorFlowDevice
    from policytool.numerics.check_results.graphs import GraphRewrite
    from policytool.numerics.check_results.inputs import CheckInput, CheckInputs

_REASONS: Final = 3
"""How many reasons are told why layers keep their policy, the commonest first."""

_INPUTS: Final = 4
_TYPES: Final = 4


def sides(check: Check) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for each of the two models, and for what loaded them."""
    both = check.reference, check.candidate
    libraries = list(dict.fromkeys(side.library for side in both if side.library))
    for label, side in zip(("reference", "candidate"), both, strict=True):
        yield (
            label,
            " · ".join([*side_words(side), *([side.library] if len(libraries) > 1 else [])]),
        )
        if side.kept:
            yield "kept", _kept_layers(side)
    release = (
        [f"TensorFlow {check.versions['tensorflow']}"] if "tensorflow" in check.versions else []
    )
    alike = [
        library
        for library in libraries
        if len(libraries) == 1 and library.lower() not in [one.lower() for one in release]
    ]
    backends = list(dict.fromkeys(f"{side.backend} backend" for side in both if side.library))
    yield "versions", " · ".join([*release, *alike, *backends])


def around(run: CheckRun) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for the device of a run and for its inputs."""
    yield "device", " · ".join(device(run.device))
    yield "inputs", inputs(run.inputs)
    if run.rewrite is not None:
        yield "rewrite", rewrite(run.rewrite)
        yield from kept_scopes.facts(run.rewrite)
    if run.aliases:
        yield "same graph", f"{join_first(run.aliases)} (not run again)"
    if run.unmatched:
        yield (
            "unmatched",
            (
                f"{many(len(run.unmatched), 'layer')} called by only one model: "
                f"{join_first(run.unmatched)}"
            ),
        )


def side_words(side: CheckSide) -> Iterator[str]:
    """Yield what a model is: its path, and how many of its layers have each policy."""
    yield side.path
    counts = sorted(side.policies.items(), key=lambda item: (-item[1], item[0]))
    if counts:
        (first, count), *others = counts
        yield ", ".join(
            [
                f"{many(count, 'layer')} in {first}",
                *(f"{number:,} in {policy}" for policy, number in others),
            ]
        )
    if side.weights == "random":
        yield "random weights"
    if side.dequantized:
        yield f"{' and '.join(side.dequantized)} layers dequantized"


def _kept_layers(side: CheckSide) -> str:
    reasons = Counter(side.kept.values())
    told = [f"{_because(side, reason)}" for reason, _ in reasons.most_common(_REASONS)]
    more = sum(count for _, count in reasons.most_common()[_REASONS:])
    return (
        f"{many(len(side.kept), 'layer')}: "
        f"{'; '.join(told)}{f'; {more} more for other reasons' if more else ''}"
    )


def _because(side: CheckSide, reason: str) -> str:
    names = [name for name, said in side.kept.items() if said == reason]
    return f"{join_first(names)} ({reason})"


def device(found: TensorFlowDevice) -> Iterator[str]:
    """Yield what a device is."""
    yield found.name
    if found.model:
        yield found.model
    if found.compute_capability:
        yield f"compute capability {found.compute_capability}"
    if found.memory is not None:
        yield bytes_words(found.memory)
    if found.driver:
        yield f"driver {found.driver}"
    yield from (
        f"{name} {number}"
        for name, number in (("CUDA", found.cuda), ("cuDNN", found.cudnn))
        if number
    )


def rewrite(found: GraphRewrite) -> str:
    """Return what TensorFlow's own automatic mixed precision changed."""
    if found.unchanged is not None:
        return f"{found.said}; {found.unchanged}"
    types = sorted(found.by_type.items(), key=lambda item: (-item[1], item[0]))
    named = join_first([f"{count:,} {kind}" for kind, count in types], _TYPES)
    before = (
        (
            f"; {many(found.narrow_before, 'op')} used 16 bits before, so the original graph is "
            "not a float32 reference"
        )
        if found.narrow_before
        else ""
    )
    return (
        f"{found.said}: {found.ops:,} of {many(found.total, 'op')} now use 16 bits "
        f"({named}), {many(found.casts, 'cast')} added{before}"
    )


def inputs(found: CheckInputs) -> str:
    """Return what both models were fed with."""
    kind = f"synthetic (seed {found.seed})" if found.kind is InputKind.SYNTHETIC else "given"
    size = (
        f"{many(found.batches, 'batch') if found.batches == 1 else f'{found.batches:,} batches'} "
        f"of {found.batch_size:,}"
    )
    shown = [_input(one) for one in found.inputs[:_INPUTS]]
    left = len(found.inputs) - len(shown)
    return f"{kind}, {size}: {'; '.join([*shown, *([f'{left} more'] if left else [])])}"


def _input(found: CheckInput) -> str:
    return f"{found.name} {found.dtype} {shape(found.shape)}, {found.how}"


def shape(sizes: tuple[int | None, ...] | None) -> str:
    """Return a shape as Python writes it; a question mark for what is not known."""
    if sizes is None:
        return "?"
    inside = ", ".join("None" if size is None else str(size) for size in sizes)
    return f"({inside},)" if len(sizes) == 1 else f"({inside})"
