"""
Build the wheel and the source distribution, and run both as a user would install them: ``make
package``.

The build starts from a copy of the tracked files. Both distributions must contain exactly the
expected files and pass ``twine check --strict``. Each is then installed, without extras, into a
clean environment of each supported Python that is installed, and runs commands on one model of
each format, outside the source tree. All packages come from lock files.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.packaging import contents, interpreters
from tests.packaging.commands import MODELS, PROGRAM, commands
from tests.requirements.locks import DIRECTORY, HASHED, LOCAL

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
SCHEMAS: Final[Mapping[str, tuple[str, ...]]] = {
    "vendor.github-workflows": (".github/workflows/ci.yml", ".github/workflows/release.yml"),
    "vendor.github-actions": ("action.yml",),
    "vendor.github-issue-forms": (
        *(f".github/ISSUE_TEMPLATE/{name}.yml" for name in ("bug", "model", "feature")),
    ),
    "vendor.github-issue-config": (".github/ISSUE_TEMPLATE/config.yml",),
    "vendor.dependabot": (".github/dependabot.yml",),
    "vendor.citation-file-format": ("CITATION.cff",),
}
"""Schema of check-jsonschema to the files that must match it."""


class PackagingError(Exception):
    """A distribution is wrong, or a command of an installed policytool failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tools:
    """The environment that builds, checks and installs distributions."""

    directory: Path

    def run(self, name: str, *arguments: str | Path) -> None:
        """
        Run a program of the environment.

        :raises PackagingError: if it fails, with its output.
        """
        checked([self.directory / "bin" / name, *arguments])


def checked(command: Sequence[str | Path], *, code: int = 0, cwd: Path = ROOT) -> str:
    """
    Run a program without the variables of Python and policytool, and return its stdout.

    :raises PackagingError: if its exit code is not ``code``, with its output.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("POLICYTOOL_", "PYTHON")) and name != "VIRTUAL_ENV"
    }
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    if done.returncode != code:
        words = " ".join(map(str, command))
        raise PackagingError(
            f"exit code {done.returncode} of {words}\n{done.stdout[-5000:]}{done.stderr[-5000:]}"
        )
    return done.stdout


def tools_in(work: Path) -> Tools:
    """Create an environment with the tools of the group ``package`` in pyproject.toml."""
    directory = work / "tools"
    venv.create(directory, with_pip=True)
    tools = Tools(directory=directory)
    tools.run("python", "-m", "pip", "install", "--quiet", *HASHED, DIRECTORY / "package.txt")
    return tools


def source_copy(work: Path) -> Path:
    """Copy the files that Git tracks, and new files, without the fixtures."""
    paths = (".", ":!fixtures")
    listed = checked(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    )
    source = work / "source"
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    return source


def built(tools: Tools, source: Path, out: Path) -> tuple[Path, Path]:
    """
    Build the source distribution, and the wheel from it, and check their metadata and files.

    :raises PackagingError: if something is missing, unexpected or invalid.
    """
    shutil.rmtree(out, ignore_errors=True)
    tools.run("pyproject-build", "--no-isolation", "--outdir", out, source)
    (wheel,) = out.glob("*.whl")
    (sdist,) = out.glob("*.tar.gz")
    tools.run("twine", "check", "--strict", wheel, sdist)
    package = contents.package_files(source)
    problems = [
        *contents.wheel_problems(contents.members(wheel), package, version_of(wheel)),
        *contents.source_problems(contents.members(sdist), package),
    ]
    if problems:
        raise PackagingError("\n".join(problems))
    return wheel, sdist


def version_of(wheel: Path) -> str:
    """Return the version in the name of a wheel."""
    return wheel.name.split("-")[1]


def models_in(directory: Path) -> None:
    """Copy the fixtures that the commands use."""
    for names in MODELS.values():
        for name in names:
            source, target = ROOT / "fixtures" / name, directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copyfile(source, target)


def try_distribution(tools: Tools, distribution: Path, python: str, version: str) -> None:
    """
    Install a distribution into a clean environment, and run every command.

    :raises PackagingError: if a command fails, or prints something unexpected.
    """
    with tempfile.TemporaryDirectory(prefix="policytool-package-") as name:
        work = Path(name)
        environment = work / "environment"
        tools.run("uv", "venv", "--quiet", "--no-python-downloads", "--python", python, environment)
        installed = environment / "bin/python"
        install = ("uv", "pip", "install", "--quiet", "--python", installed)
        tools.run(*install, *HASHED, DIRECTORY / "user.txt")
        tools.run(*install, *LOCAL, distribution)
        tools.run("uv", "pip", "check", "--quiet", "--python", installed)
        if not (environment / "share/man/man1/policytool.1").is_file():
            raise PackagingError("the man page is not installed")
        (models := work / "models").mkdir()
        models_in(models)
        for command in commands(version):
            program: list[str | Path] = [environment / "bin/policytool", *command.arguments]
            problem = command.problem(checked(program, code=command.code, cwd=models))
            if problem is not None:
                raise PackagingError(f"policytool {' '.join(command.arguments)}: {problem}")
        checked([installed, "-c", PROGRAM], cwd=models)


def validate_files(tools: Tools) -> None:
    """
    Check files for GitHub and the citation against their schemas, and lint the Dockerfile.

    :raises PackagingError: if a file does not match.
    """
    tools.run("hadolint", "Dockerfile")
    for schema, files in SCHEMAS.items():
        tools.run("check-jsonschema", "--quiet", "--builtin-schema", schema, *files)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=ROOT / "dist",
        metavar="DIR",
        help="directory of the distributions; it is replaced",
    )
    arguments = parser.parse_args()
    versions = interpreters.supported_versions((ROOT / "pyproject.toml").read_text("utf-8"))
    try:
        pythons = interpreters.installed(versions)
        with tempfile.TemporaryDirectory(prefix="policytool-build-") as name:
            tools = tools_in(Path(name))
            validate_files(tools)
            wheel, sdist = built(tools, source_copy(Path(name)), arguments.out.resolve())
            for distribution in (wheel, sdist):
                print(f"{distribution.name}: {distribution.stat().st_size:,} bytes")
            for version, python in pythons.items():
                for distribution in (wheel, sdist):
                    start = time.monotonic()
                    try_distribution(tools, distribution, python, version_of(wheel))
                    seconds = time.monotonic() - start
                    print(f"Python {version}: {distribution.name} works ({seconds:.0f} s)")
    except (PackagingError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for version in versions:
        if version not in pythons:
            print(f"Python {version}: not tested, because it is not installed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
