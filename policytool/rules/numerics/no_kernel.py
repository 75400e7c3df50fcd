"""
Layer or graph needs an op that has no kernel for its dtype on the chosen device.

On a CPU, such a layer fails when it is called: "Could not find device for node". On a GPU,
TensorFlow silently runs the op on the CPU if a CPU kernel exists, and copies the data between the
devices. The rule reports this as a warning, or as an error if the CPU has no kernel either. The
cause is always the policy, because a float32 kernel exists. The rule checks the ops of each Keras
layer and, for a SavedModel, also the ops of its graph.

Source: the TensorFlow 2.21 kernel registry, and layers traced with tf_keras 2.21 and Keras 3.15. On
a CPU, the registry predicted exactly which layers failed when they were called. For GPUs, only the
registry was used; no layer was called on a GPU. The registry does not include the kernels that
oneDNN adds on some CPUs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from policytool.model import custom_classes
from policytool.model.rounded_weights import compute_dtype
from policytool.releases import kernels
from policytool.rules.base import Device, Needs, Rule
from policytool.rules.finding import Fix, Severity
from policytool.rules.numerics._judging import judged_model, libraries, to_float32

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from policytool.formats.document import Document
    from policytool.model.loaded_model import LoadedModel
    from policytool.rules.base import AuditOptions, RuleInput
    from policytool.rules.finding import Finding

_JUDGED: Final = frozenset({"float16", "bfloat16", "float64"})


def check(case: RuleInput, options: AuditOptions) -> Iterator[Finding]:
    """Yield the layers, then the ops of the graph that no layer is known to need."""
    if options.device is None:
        return
    loaded = judged_model(case, options)
    told = set[str]()
    if loaded is not None:
        asked = libraries(loaded, options)
        for index in range(len(loaded.sites)):
            ops = _of_layer(loaded, index, asked, options.device)
            if ops:
                told.update(ops)
                yield _layer(loaded, index, ops, options.device)
    yield from _graph(case.document, told, options.device)


def _of_layer(
    loaded: LoadedModel, index: int, asked: Iterable[str], device: Device
) -> tuple[str, ...]:
    site, policy = loaded.sites[index], loaded.policy_name(index)
    if (
        policy is None
        or compute_dtype(loaded, index) not in _JUDGED
        or custom_classes.is_opaque(site)
    ):
        return ()
    activation = loaded.config(index).get("activation")
    name = activation if isinstance(activation, str) else None
    return next(
        (
            found
            for library in asked
            if (found := kernels.missing(library, site.class_name, name, policy, device.value))
        ),
        (),
    )


def _layer(loaded: LoadedModel, index: int, ops: tuple[str, ...], device: Device) -> Finding:
    layer, dtype = loaded.layers[index], compute_dtype(loaded, index) or ""
    message = (
        f"{layer.path} ({layer.class_name}) needs {' and '.join(ops)} in {dtype}, "
        f"{_comes(ops, dtype, device)}"
    )
    severity = _severity(ops, dtype, device)
    return RULE.finding(
        message,
        path=layer.path,
        address=layer.address,
        severity=severity,
        remedy=to_float32(loaded, (index,)),
    )


def _graph(document: Document, told: set[str], device: Device) -> Iterator[Finding]:
    found: Counter[tuple[str, str]] = Counter()
    for trace in document.traces:
        seen: Counter[tuple[str, str]] = Counter()
        for op, count in trace.ops:
            for dtype in op.dtypes:
                if (
                    dtype in _JUDGED
                    and op.op not in told
                    and kernels.lacks(op.op, dtype, device.value)
                ):
                    seen[op.op, dtype] += count
        found |= seen
    for (name, dtype), count in sorted(found.items()):
        times = "once" if count == 1 else f"{count} times"
        message = f"the graph runs {name} in {dtype} {times}, {_comes((name,), dtype, device)}"
        yield RULE.finding(
            message,
            detail=f"{name} {dtype}",
            severity=_severity((name,), dtype, device),
            advice="export the model again with this part in float32",
        )


def _severity(ops: tuple[str, ...], dtype: str, device: Device) -> Severity:
    return (
        Severity.ERROR
        if device is Device.CPU or any(kernels.lacks(op, dtype, Device.CPU.value) for op in ops)
        else Severity.WARNING
    )


def _comes(ops: tuple[str, ...], dtype: str, device: Device) -> str:
    which = "for which TensorFlow 2.21 has"
    if device is Device.CPU:
        return f"{which} no CPU kernel"
    if _severity(ops, dtype, device) is Severity.ERROR:
        return f"{which} neither a GPU nor a CPU kernel"
    return f"{which} no GPU kernel, so it runs on the CPU"


RULE: Final = Rule(
    id="PT310",
    name="no-kernel",
    severity=Severity.ERROR,
    fix=Fix.UNSAFE,
    check=check,
    doc=__doc__,
    example=("a MaxPooling3D that uses mixed_float16, audited with --device cpu"),
    needs=Needs.DEVICE,
)
