"""
The lock files: what each contains, and how pip and uv install it.

CI must give the same result on each day, so its targets install nothing but the files of this
directory. ``make lock`` writes them. This module uses only the standard library, because the
virtual environments are made with it.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY: Final = Path(__file__).parent
ROOT: Final = Path(__file__).parents[2]

HASHED: Final = ("--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement")
"""
The options of pip and uv that install a lock file, which follows them.

A lock file is complete, so the dependencies are not resolved again. A source distribution would
need build requirements, which no lock file contains.
"""

LOCAL: Final = ("--no-index", "--no-build-isolation")
"""
The options that install the project after a lock file. An isolated build would install the newest
build requirements. Without an index, the installation fails if a dependency is missing.
"""

SYSTEMS: Final = ("linux", "darwin")
"""Values of ``sys.platform`` that the lock files support."""

RELEASES: Final = {
    # The newest releases. tensorflow-cpu is a third of tensorflow's size.
    "tensorflow": ("tensorflow-cpu==2.21.0", "keras==3.15.1", "h5py==3.14.0", "tf-keras==2.21.0"),
    # The backend that `check` runs models on if there is no TensorFlow.
    "jax": ("jax==0.10.2", "keras==3.15.1", "h5py==3.16.0"),
    # The only library that loads presets.
    "hub": ("tensorflow-cpu==2.21.0", "keras==3.15.1", "h5py==3.14.0", "keras-hub==0.32.0"),
    # A server with its database, and artifacts in buckets. The tests' own environment has only
    # the client, like the environment of a user.
    "mlflow": ("mlflow==3.17.2", "boto3==1.44.5"),
}
"""Lock file of an environment with real libraries to the releases in it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lock:
    """One lock file, and the requirements that it satisfies."""

    name: str

    project: bool = False
    """Whether it contains the dependencies of policytool, and the requirements of its build."""

    extras: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()

    releases: tuple[str, ...] = ()
    """Further requirements."""

    excluded: tuple[str, ...] = ()
    """Dependencies that are not installed."""

    like: str | None = None
    """A lock file whose versions it shares, because both are installed into one environment."""

    pythons: tuple[int, int] = (11, 14)
    """The first and the last minor version of Python 3."""

    systems: tuple[str, ...] = SYSTEMS

    @property
    def path(self) -> Path:
        """Return where the lock file is."""
        return DIRECTORY / f"{self.name}.txt"

    def requirements(self, pyproject: str) -> Iterator[str]:
        """Yield the requirements, as a pyproject.toml states them."""
        stated: dict[str, Any] = tomllib.loads(pyproject)
        if self.project:
            yield from stated["build-system"]["requires"]
            yield from stated["project"]["dependencies"]
        for extra in self.extras:
            yield from stated["project"]["optional-dependencies"][extra]
        for group in self.groups:
            yield from stated["dependency-groups"][group]
        yield from self.releases


LOCKS: Final = (
    # The extras for users contain packages of the tests, too.
    Lock(name="dev", project=True, extras=("remote", "mlflow", "orbax", "fleet"), groups=("dev",)),
    Lock(name="user", project=True, like="dev"),
    Lock(name="docs", project=True, groups=("docs",), like="dev"),
    Lock(name="package", groups=("package",)),
    Lock(name="uv", extras=("releases",)),
    Lock(name="sbom", groups=("sbom",)),
    Lock(
        name="tensorflow",
        releases=RELEASES["tensorflow"],
        # tf-keras requires it, in addition to tensorflow-cpu.
        excluded=("tensorflow",),
        # TensorFlow has no wheels for Python 3.14, and tensorflow-cpu has none for macOS.
        pythons=(11, 13),
        systems=("linux",),
    ),
    Lock(name="jax", extras=("jax",), releases=RELEASES["jax"]),
    Lock(
        name="hub",
        releases=RELEASES["hub"],
        # As for tensorflow; keras-hub requires it with tensorflow-text.
        excluded=("tensorflow",),
        pythons=(11, 13),
        systems=("linux",),
    ),
    Lock(name="mlflow", releases=RELEASES["mlflow"]),
)
"""Every lock file; one that another is like comes first."""
