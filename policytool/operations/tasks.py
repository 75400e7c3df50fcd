"""What can be done to many files at once, by name; a task's modules are imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from policytool.codec import Codec, codec

if TYPE_CHECKING:
    from policytool.discovery import Input
    from policytool.finding import Audited
    from policytool.model import Model
    from policytool.operations.inspection import Failure
    from policytool.rules import Question

Asked = TypeVar("Asked")
Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class Task(Generic[Asked, Result]):
    """One thing that is done to each of many files, on its own."""

    name: str
    attempt: Callable[[Input, Asked], Result]
    """Returns what became of a file; a failure to read it is a result."""

    asked: Codec[Asked]
    result: Codec[Result]


def inspect() -> Task[None, Model | Failure | None]:
    """Return the task of ``inspect``."""
    from policytool import model, policy
    from policytool.operations import inspection

    names = {"Mapping": Mapping, **_classes(policy.Dynamic, policy.Fixed, policy.Quantization)}
    result = codec(model.Model | inspection.Failure | None, names)
    return Task(name="inspect", attempt=lambda found, _: inspection.attempted(found), asked=codec(None, {}), result=result)


def audit() -> Task[Question, Audited | Failure | None]:
    """Return the task of ``audit``."""
    from policytool import document, finding, model, rules
    from policytool.operations import auditing, inspection

    names = {"Mapping": Mapping, **_classes(model.Address, document.Signature)}
    result = codec(finding.Audited | inspection.Failure | None, names)
    return Task(name="audit", attempt=auditing.attempted, asked=codec(rules.Question, names), result=result)


TASKS: Final[Mapping[str, Callable[[], Task[Any, Any]]]] = {"inspect": inspect, "audit": audit}


def _classes(*classes: type) -> dict[str, object]:
    """Return classes by the names that annotations have for them."""
    return {cls.__name__: cls for cls in classes}
