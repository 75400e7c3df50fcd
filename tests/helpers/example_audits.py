"""
Audits for the tests of their reports: one of real files, one made by hand with all that a report
has to show, and drawn ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st
from msgspec.structs import replace

from policytool.commands import audit as auditing
from policytool.commands.audit import Audit
from policytool.commands.inspect import Failure
from policytool.formats.discovery import Input
from policytool.formats.document import Address
from policytool.model.model import Effect
from policytool.rules import BY_ID, AuditOptions, Needs, Rule
from policytool.rules.base import (
    Audited,
    Finding,
    Fix,
    ModelCommand,
    Remedy,
    Severity,
    Suppressed,
    fingerprints,
)
from policytool.rules.fixes import FixedModel, FixOutcome, UnfixedFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytool.rules import RuleInput

FILES: Final = (
    "fixtures/tf2.3/exp_mf16_fixed128.h5",
    "fixtures/keras3.15/default_float32.h5",
    "fixtures/tf2.4/exp_mf16_fixed128",
    "fixtures/README.md",
)


def real() -> Audit:
    """Return what one rule finds in fixtures, read from the root of the tree."""
    found = auditing.collect(
        auditing.attempt(Input(path=Path(file), exact=True), AuditOptions()) for file in FILES
    )
    rule = BY_ID["PT101"]
    models = (
        replace(audited, findings=tuple(one for one in audited.findings if one.rule == rule.id))
        for audited in found.audited
    )
    return replace(found, audited=tuple(models), rules=(rule,))


def _finds_nothing(_case: RuleInput, _question: AuditOptions) -> Iterator[Finding]:
    yield from ()


SPELLED: Final = Rule(
    id="PT198",
    name="unusual-format",
    severity=Severity.WARNING,
    fix=Fix.SAFE,
    check=_finds_nothing,
    doc="""
Policies have a format that ``Keras 3`` does not read.

It names :class:`policytool.releases.policy.Policy`, <angles>, a*star* and snake_case; see
https://example.org/a_b?c=d, and

- one thing, which goes
  on below;
- ``another`` thing.

As in::

    {"dtype": "mixed_float16"}

====== =====
dtype  bits
====== =====

Source: TF 2.3.4.
""",
    example='"dtype": "mixed_float16"',
)
NUMBERS: Final = replace(
    SPELLED,
    id="PT398",
    name="too-large",
    severity=Severity.ERROR,
    fix=Fix.UNSAFE,
    needs=Needs.WEIGHTS,
    doc="Weights beyond 65504.\n\nSource: IEEE 754.\n",
)
REMARK: Final = replace(
    SPELLED,
    id="PT598",
    name="unknown-compatibility",
    severity=Severity.NOTE,
    fix=None,
    doc="Compatibility cannot be determined.\n\nSource: docs/reference/compatibility.md.\n",
)
RULES: Final = (SPELLED, NUMBERS, REMARK)

_LONG: Final = (
    "encoder/block_{}/self_attention_layer_normalization/distributed_dense_of_the_projection"
)
NASTY: Final = (
    "a`b|c<b>d</b>&amp;@octocat #1 [x](javascript:alert) {0} ]]> "
    "::error::%0A\x1b[2J\n::warning::\u202e\udc80\ufffe\x00 'q\" $(id)"
)
"""What a layer or a file may be called, and what each format would make of it."""


def suppressed(*found: Suppressed) -> tuple[Suppressed, ...]:
    """Return what was let pass with its fingerprints."""
    marks = fingerprints([one.finding for one in found])
    return tuple(replace(one, fingerprint=mark) for one, mark in zip(found, marks, strict=True))


def _spelled() -> Iterator[Finding]:
    for number, name in enumerate(("mlp", "mlp/dense_a", "mlp/dense_b")):
        yield SPELLED.finding(
            f"{name} has mixed_float16 in the format of TF 2.3",
            path=name,
            address=Address(part="model_config", pointer=f"/config/layers/{number}"),
            remedy=Remedy(fix=Fix.SAFE),
        )
    yield SPELLED.finding(
        "the optimizer has its policy in the format of TF 2.3",
        remedy=Remedy(fix=Fix.SAFE, keep_loss_scale=True),
    )


def _numbers() -> Iterator[Finding]:
    for number in range(3):
        path = _LONG.format(number)
        remedy = Remedy(fix=Fix.UNSAFE, assignments=((path, "float32"),))
        yield NUMBERS.finding(
            f"{path} has 3 of 4,096 weights that overflow in float16, the largest is "
            f"70000.{number}",
            path=path,
            remedy=remedy,
        )
    for variable in ("kernel", "bias"):
        message = f"the {variable} of mlp/norm holds values that float16 flushes to zero"
        yield NUMBERS.finding(
            message,
            path="mlp/norm",
            detail=variable,
            severity=Severity.WARNING,
            advice="train it again with a larger epsilon",
        )


def made() -> Audit:
    """
    Return an audit with every kind of finding, names that no report may be led by, suppressed
    findings, failures, and a clean file.
    """
    layers = ("mlp/dense_1", "mlp/dense_2")
    let_pass = [
        SPELLED.finding(
            f"{path} has mixed_float16 in the format of TF 2.3",
            path=path,
            remedy=Remedy(fix=Fix.SAFE),
        )
        for path in layers
    ]
    remark = REMARK.finding("no table covers keras9.9", detail="keras9.9")
    models = (
        Audited(
            path="models/mlp.h5",
            format="h5",
            generation="tf2.3",
            layers=9,
            findings=(*_spelled(), *_numbers(), remark),
            commands=(
                ModelCommand(
                    target="keras3",
                    arguments=("--set", "mlp/norm=float32", "--target", "keras3"),
                    effect=Effect.CHANGED,
                ),
                ModelCommand(target="tf2.3", reason=f"PT398 still occurs: {NASTY} overflows"),
            ),
        ),
        Audited(
            path="models/clean.keras", format="keras", generation="keras3.4+", layers=2, findings=()
        ),
        Audited(
            path=f"-models/{NASTY}.h5",
            format="h5",
            generation=None,
            layers=1,
            findings=(
                SPELLED.finding(
                    f"{NASTY} has an unusual format", path=NASTY, remedy=Remedy(fix=Fix.SAFE)
                ),
            ),
        ),
        Audited(
            path="exported",
            format="savedmodel",
            generation="tf2.5-2.8",
            layers=3,
            findings=(),
            suppressed=suppressed(
                *(
                    Suppressed(
                        finding=finding, reason="served by TF 2.3 | until *March*", by="suppression"
                    )
                    for finding in let_pass
                ),
                Suppressed(finding=remark, reason="", by="baseline"),
            ),
        ),
        Audited(
            path="/elsewhere/noted model.json",
            format="json",
            generation=None,
            layers=1,
            findings=(remark,),
        ),
        Audited(
            path="s3://bucket/a b.keras",
            format="keras",
            generation=None,
            layers=1,
            findings=(REMARK.finding("mlp was not checked", path="mlp"),),
        ),
    )
    failures = (
        Failure(
            path="broken|.h5",
            code="truncated",
            message=(
                "is truncated: it has 12 bytes, but its header declares 4,096; copy or "
                "download it again"
            ),
        ),
    )
    keep = SPELLED.finding(
        "the optimizer has its policy in the format of TF 2.3",
        remedy=Remedy(fix=Fix.UNSAFE, keep_loss_scale=True),
    )
    fixed = (
        FixedModel(
            path="models/mlp.h5",
            outcome=FixOutcome.FIXED,
            arguments=("--target", "keras3"),
            gone=tuple(let_pass),
            left=(
                UnfixedFinding(
                    finding=keep, reason="it changes numerics | or how *training* goes on"
                ),
            ),
            warnings=("the loss scale of 128 is no longer in the file",),
            backup="models/mlp.h5.bak",
        ),
    )
    return Audit(audited=models, failures=failures, passed_over=2, rules=RULES, fixed=fixed)


_TEXTS: Final = st.text(min_size=1, max_size=30) | st.sampled_from(
    [NASTY, "a/b~1c", "::error::x", "[a](1)", "{0}", "`", "\\", "  "]
)


@st.composite
def findings(draw: st.DrawFn) -> Finding:
    """Draw a finding whose texts are anything."""
    texts = st.none() | _TEXTS
    rule = draw(st.sampled_from(RULES))
    remedy = (
        Remedy(fix=draw(st.sampled_from(Fix)), assignments=((draw(_TEXTS), "float32"),))
        if draw(st.booleans())
        else None
    )
    return rule.finding(
        draw(_TEXTS),
        path=draw(texts),
        detail=draw(st.just("") | _TEXTS),
        severity=draw(st.sampled_from(Severity)),
        remedy=remedy,
        advice=draw(texts),
    )


@st.composite
def commands(draw: st.DrawFn) -> ModelCommand:
    """Draw a command, or the reason why there is none, whose texts are anything."""
    target = draw(st.sampled_from([None, "keras3", "tf2.14"]))
    if draw(st.booleans()):
        return ModelCommand(target=target, reason=draw(_TEXTS))
    arguments = draw(st.lists(_TEXTS, max_size=3).map(tuple))
    return ModelCommand(target=target, arguments=arguments, effect=draw(st.sampled_from(Effect)))


@st.composite
def audits(draw: st.DrawFn) -> Audit:
    """Draw an audit of a few models, whose names and messages are anything."""
    passed = st.builds(
        Suppressed,
        finding=findings(),
        reason=_TEXTS | st.just(""),
        by=st.sampled_from(["suppression", "baseline", "per-file-ignores"]),
    )
    models = st.builds(
        Audited,
        path=_TEXTS,
        format=st.sampled_from(["h5", "savedmodel"]),
        generation=st.none(),
        layers=st.integers(0, 9),
        findings=st.lists(findings(), max_size=4).map(tuple),
        commands=st.lists(commands(), max_size=2).map(tuple),
        suppressed=st.lists(passed, max_size=2).map(lambda found: suppressed(*found)),
    )
    failures = st.builds(Failure, path=_TEXTS, code=st.just("truncated"), message=_TEXTS)
    fixed = st.builds(
        FixedModel,
        path=_TEXTS,
        outcome=st.sampled_from([FixOutcome.FIXED, FixOutcome.PLANNED]),
        gone=st.lists(findings(), max_size=2).map(tuple),
        left=st.lists(st.builds(UnfixedFinding, finding=findings(), reason=_TEXTS), max_size=2).map(
            tuple
        ),
        warnings=st.lists(_TEXTS, max_size=1).map(tuple),
        backup=st.none() | _TEXTS,
    )
    return Audit(
        audited=tuple(draw(st.lists(models, max_size=3))),
        failures=tuple(draw(st.lists(failures, max_size=2))),
        fixed=tuple(draw(st.lists(fixed, max_size=1))),
        rules=RULES,
        fail_on=draw(st.sampled_from([*Severity, None])),
    )
