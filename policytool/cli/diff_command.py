"""``policytool diff``."""

from __future__ import annotations

from policytool.cli import completion, messages, options
from policytool.cli.arguments import DiffCommandLine
from policytool.cli.command import declare_command
from policytool.cli.declared_options import Positional
from policytool.cli.exit_codes import Exit, exit_code_of_failures
from policytool.commands import diff as comparison
from policytool.commands.arguments.reading import DiffArguments
from policytool.reports.differences import DIFFERENCE_REPORTERS, Differences


@declare_command(
    "diff",
    DiffArguments,
    DiffCommandLine,
    positional=[
        Positional(
            name,
            f"The {ordinal} model: a path or a URL.",
            metavar=name.upper(),
            shell_complete=completion.files,
        )
        for name, ordinal in (("a", "first"), ("b", "second"))
    ],
    changes=options.attributes(DIFFERENCE_REPORTERS),
)
def command(arguments: DiffArguments, terminal: DiffCommandLine, *, a: str, b: str) -> int:
    """
    Show the differences between the models A and B, and exit 1 if they differ.

    A and B are paths or URLs. They may have different file formats and may come from different
    releases. Values that are written differently but have the same meaning count as equal. A note
    lists the parts that one of the file formats cannot store.
    """
    options.check(terminal.report_files, comparison.inputs(a, b))
    differences = Differences(
        outcome=comparison.try_diff(a, b, values=arguments.values, layer=arguments.layer),
        everything=terminal.all,
    )
    failures = differences.outcome.failures
    unwritten = options.publish(terminal, DIFFERENCE_REPORTERS, differences, failures)
    compared = differences.outcome.comparison
    if compared is not None and terminal.verbose:
        messages.note(
            f"compared {len(compared.layers)} layers and {len(compared.variables)} variables"
        )
    if compared is None or unwritten:
        return exit_code_of_failures(failure.code for failure in failures)
    return Exit.FINDINGS if compared.differs else Exit.CLEAN
