"""What ran: the two models, on which device, with which inputs; each fact with its label."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.numerics.check_results.checks import InputKind
from policytool.reports._words import bytes_words
from policytool.reports.checks._kept_scopes import kept_scope_facts
from policytool.reports.figures import many
from policytool.support.shorten import join_first

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.numerics.check_results.checks import (
        Check,
        CheckInput,
        CheckInputs,
        CheckRun,
        CheckSide,
        GraphRewrite,
        TensorFlowDevice,
    )

_REASONS: Final = 3
"""How many reasons are told why layers keep their policy, the commonest first."""

_INPUTS: Final = 4
_TYPES: Final = 4


def side_facts(check: Check) -> Iterator[tuple[str, str]]:
    """
    Yield a label and a text for each of the two models, and for the libraries that loaded them.
    """
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
    common_libraries = [
        library
        for library in libraries
        if len(libraries) == 1
        and library.lower() not in [release_text.lower() for release_text in release]
    ]
    backends = list(dict.fromkeys(f"{side.backend} backend" for side in both if side.library))
    yield "versions", " · ".join([*release, *common_libraries, *backends])


def run_facts(run: CheckRun) -> Iterator[tuple[str, str]]:
    """Yield a label and a text for the device of a run and for its inputs."""
    yield "device", " · ".join(device_words(run.device))
    yield "inputs", input_words(run.inputs)
    if run.rewrite is not None:
        yield "rewrite", rewrite(run.rewrite)
        yield from kept_scope_facts(run.rewrite)
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
    reason_texts = [f"{_because(side, reason)}" for reason, _ in reasons.most_common(_REASONS)]
    more = sum(count for _, count in reasons.most_common()[_REASONS:])
    return (
        f"{many(len(side.kept), 'layer')}: "
        f"{'; '.join(reason_texts)}{f'; {more} more for other reasons' if more else ''}"
    )


def _because(side: CheckSide, reason: str) -> str:
    names = [name for name, layer_reason in side.kept.items() if layer_reason == reason]
    return f"{join_first(names)} ({reason})"


def device_words(tf_device: TensorFlowDevice) -> Iterator[str]:
    """Yield the properties of a device."""
    yield tf_device.name
    if tf_device.model:
        yield tf_device.model
    if tf_device.compute_capability:
        yield f"compute capability {tf_device.compute_capability}"
    if tf_device.memory is not None:
        yield bytes_words(tf_device.memory)
    if tf_device.driver:
        yield f"driver {tf_device.driver}"
    yield from (
        f"{name} {number}"
        for name, number in (("CUDA", tf_device.cuda), ("cuDNN", tf_device.cudnn))
        if number
    )


def rewrite(changes: GraphRewrite) -> str:
    """Return what TensorFlow's automatic mixed precision changed."""
    if changes.unchanged is not None:
        return f"{changes.said}; {changes.unchanged}"
    types = sorted(changes.by_type.items(), key=lambda item: (-item[1], item[0]))
    named = join_first([f"{count:,} {kind}" for kind, count in types], _TYPES)
    before = (
        (
            f"; {many(changes.narrow_before, 'op')} used 16 bits before, so the original graph is "
            "not a float32 reference"
        )
        if changes.narrow_before
        else ""
    )
    return (
        f"{changes.said}: {changes.ops:,} of {many(changes.total, 'op')} now use 16 bits "
        f"({named}), {many(changes.casts, 'cast')} added{before}"
    )


def input_words(feed: CheckInputs) -> str:
    """Return a description of the inputs of both models."""
    kind = f"synthetic (seed {feed.seed})" if feed.kind is InputKind.SYNTHETIC else "given"
    size = (
        f"{many(feed.batches, 'batch') if feed.batches == 1 else f'{feed.batches:,} batches'} "
        f"of {feed.batch_size:,}"
    )
    input_texts = [_input(check_input) for check_input in feed.inputs[:_INPUTS]]
    left = len(feed.inputs) - len(input_texts)
    return f"{kind}, {size}: {'; '.join([*input_texts, *([f'{left} more'] if left else [])])}"


def _input(check_input: CheckInput) -> str:
    return f"{check_input.name} {check_input.dtype} {shape(check_input.shape)}, {check_input.how}"


def shape(sizes: tuple[int | None, ...] | None) -> str:
    """Return a shape as Python writes it; a question mark for what is not known."""
    if sizes is None:
        return "?"
    inside = ", ".join("None" if size is None else str(size) for size in sizes)
    return f"({inside},)" if len(sizes) == 1 else f"({inside})"
