"""
What the real libraries can do with a layer class under a policy.

``data/layer_dtypes.json`` is what they said themselves (``fixtures/layer_dtypes.py`` asks them):
for each release and case, ``Class`` or ``Class[arguments]``, the policies under which it cannot be
built or run, the variables that do not have the policy's variable dtype, and the outputs that do
not have its compute dtype. ``data/kernels.json`` has the ops that each layer runs, and those for
which a device has no kernel in a dtype.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from policytool.releases import data
from policytool.releases.releases import releases_in

if TYPE_CHECKING:
    from collections.abc import Mapping


Facts = dict[str, Any]
_ORDINARY = "float32"


@cache
def measurements() -> Facts:
    """Return the data, which only contains measured releases."""
    return data.read("layer_dtypes")


def layer_failure(library: str, class_name: str, policy: str) -> str | None:
    """
    Return the reason why a layer of the class cannot be built or run under a policy, with any
    arguments; None if it can.

    :func:`initializer_failure` returns the failures that another initializer avoids.
    """
    cases = _cases(library, class_name)
    default_case = cases.get(class_name)
    explains = default_case is not None and "fails" not in default_case.get(
        _ORDINARY, {}
    )  # a class that refuses even float32 by default says nothing of the others
    chosen = (
        [default_case]
        if default_case is not None and explains
        else [facts for case, facts in cases.items() if case != class_name]
    )
    messages = [_own_trouble(facts.get(policy, {})) for facts in chosen]
    return messages[0] if messages and all(messages) else None


_FUSED_FAILURE: Final = "Value passed to parameter 'input' has DataType bfloat16"
_FUSED_FAILURES: Final = {
    ("GRU", "bfloat16"): releases_in("tf2.1 to tf2.12"),
    ("GRU", "mixed_bfloat16"): releases_in("tf2.5 to tf2.12"),
    ("LSTM", "bfloat16"): releases_in("tf2.1 to tf2.12"),
    ("LSTM", "mixed_bfloat16"): releases_in("tf2.1 to tf2.12"),
}
"""
The releases that fail to build a recurrent layer with the arguments for which they can use a kernel
of cuDNN. With others, such as ``unroll`` or ``recurrent_dropout``, they build it (measured with
both classes in each release).
"""

_INITIALIZER_LIKE: Final = {"tf2.4": "tf2.5"}
"""An unmeasured release, and one that is like it: in both, Orthogonal fails in the op ``Qr``."""


def build_failure(
    library: str, class_name: str, policy: str, *, is_fused: bool = False
) -> str | None:
    """
    Return the reason why a layer of the class cannot be built under a policy, as loading requires;
    None if it can be built, even if it cannot run.

    :param is_fused: whether a recurrent layer has the arguments that cuDNN supports
    """
    if is_fused and library in _FUSED_FAILURES.get((class_name, policy), ()):
        return _FUSED_FAILURE
    stages = {facts.get(policy, {}).get("fails") for facts in _cases(library, class_name).values()}
    return layer_failure(library, class_name, policy) if stages <= {"construct", "build"} else None


def failing_stage(library: str, class_name: str, mode: str | None, policy: str) -> tuple[str, str]:
    """
    Return where a layer with an output mode fails under a policy (``construct``, ``build`` on a
    symbolic input, or later), and the error; two empty strings if it does not.
    """
    cases = _cases(library, class_name)
    facts = cases.get(f"{class_name}[{mode}]", cases.get(class_name, {})).get(policy, {})
    return facts.get("fails", ""), facts.get("message", "")


def initializer_failure(library: str, initializer: str, dtype: str) -> str | None:
    """
    Return the reason why an initializer cannot create variables of a dtype, as loading requires;
    None if it can.
    """
    library = _INITIALIZER_LIKE.get(library, library)
    reason = measurements()["initializers"].get(library, {}).get(initializer, {}).get(dtype)
    return str(reason) if reason else None


def variable_dtype(library: str, class_name: str, policy: str, variable: str) -> str | None:
    """
    Return the dtype of a variable that ignores the policy's variable dtype; None for other
    variables.
    """
    for facts in _cases(library, class_name).values():
        dtype = facts.get(policy, {}).get("variables", {}).get(variable)
        if dtype:
            return str(dtype)
    return None


def variable_dtypes(library: str, class_name: str, policy: str) -> frozenset[str]:
    """
    Return the dtypes of the variables that the class does not keep in the policy's variable dtype,
    for files that do not say which variable is which.
    """
    return frozenset(
        str(dtype)
        for facts in _cases(library, class_name).values()
        for dtype in facts.get(policy, {}).get("variables", {}).values()
    )


def output_dtype(library: str, class_name: str, argument: str | None, policy: str) -> str | None:
    """Return the output dtype of a layer if it is not its compute dtype; None for other layers."""
    facts = _cases(library, class_name).get(
        f"{class_name}[{argument}]" if argument else class_name, {}
    )
    dtype = facts.get(policy, {}).get("output")
    return dtype if isinstance(dtype, str) else None


def computes_as_stored(library: str, class_name: str, variable: str) -> bool:
    """
    Return whether a layer of the class computes with a float32 variable without casting it under a
    mixed policy. A number stands for any variable of the layer.

    ``data/casts.json`` has the results of trying it (``fixtures/kernels.py``). A class that was not
    tried is assumed to cast all of its variables.
    """
    names = _uncast_arguments(library).get(class_name, frozenset())
    return bool(names) if variable.isdigit() else variable in names


@cache
def _uncast_arguments(library: str) -> Mapping[str, frozenset[str]]:
    names_by_class: dict[str, frozenset[str]] = defaultdict(frozenset)
    for case, names in data.read("casts")["uncast"].get(library, {}).items():
        names_by_class[case.partition("[")[0]] |= frozenset(names)
    return names_by_class


def _cases(library: str, class_name: str) -> Mapping[str, Facts]:
    """Return the facts of each case of a class; empty if the class has no entry in the data."""
    return _index(library).get(class_name, {})


@cache
def _index(library: str) -> Mapping[str, Mapping[str, Facts]]:
    """
    Return the measured cases of a library by class. Look-ups must be fast, because files from
    strangers name the classes.
    """
    different: Facts = measurements().get(library, {})
    cases_by_class: dict[str, dict[str, Facts]] = defaultdict(dict)
    for case in measurements()["measured"].get(library, []):
        cases_by_class[case.partition("[")[0]][case] = different.get(case, {})
    return cases_by_class


def _own_trouble(facts: Facts) -> str | None:
    if "fails" not in facts or "ok" in {
        facts.get("zeros"),
        facts.get("glorot_uniform"),
        facts.get("onednn"),
    }:
        return None
    return str(facts["message"])


def missing(
    library: str, class_name: str, activation: str | None, policy: str, device: str
) -> tuple[str, ...]:
    """
    Return the ops of a layer for which a device has no kernel; empty for classes that were not
    traced.
    """
    cases: Mapping[str, Any] = data.read("kernels")["layers"].get(library, {})
    names = (class_name, f"Activation[{activation}]") if activation else (class_name,)
    return tuple(
        dict.fromkeys(
            op for name in names for op in cases.get(name, {}).get(policy, {}).get(device, ())
        )
    )


def lacks(op: str, dtype: str, device: str) -> bool:
    """Return whether a device has kernels for an op in float32, but none for the dtype."""
    return op in _ops(device, dtype)


@cache
def _ops(device: str, dtype: str) -> frozenset[str]:
    return frozenset(data.read("kernels")["ops"].get(device, {}).get(dtype, ()))
