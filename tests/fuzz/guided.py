"""
Fuzzing that follows coverage: ``python -m tests.fuzz.guided TARGET SECONDS``, with atheris (the
extra ``fuzz``).

The package is instrumented, not the tests. Inputs that reach new code are kept in
``build/fuzz/corpus/TARGET`` and changed further: by the changes that know the structure, and by
those of libFuzzer. HDF5 files are not among the targets, because the library that reads them is not
instrumented.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.fuzz.volume import Tally

_UNITS: Final = re.compile(r"stat::number_of_executed_units: (\d+)")
_MEMORY: Final = re.compile(r"stat::peak_rss_mb: +(\d+)")
_LONGEST: Final = 2**16
_TALLY: Final = "POLICYTOOL_FUZZ_TALLY"
"""The variable that says where a process leaves what its inputs came to."""


def main(name: str, seconds: str) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["policytool"]):
        from tests.fuzz import targets
    from tests.fuzz import volume, words

    target, tally = targets.TARGETS[name], volume.Tally()
    corpus = volume.FOUND / "corpus" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for data in target.seeds():
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    dictionary = corpus.parent / "words.txt"
    dictionary.write_text(
        "".join(
            f'"{word}"\n' for word in words.dictionary() if word.isascii() and word.isprintable()
        ),
        encoding="utf-8",
    )
    directory = Path(tempfile.mkdtemp(dir=volume.memory()))

    def test(data: bytes) -> None:
        try:
            tally.saw(target.run(data, directory))
        except Exception as error:  # noqa: BLE001  # all of them are what is looked for
            tally.crashes += 1
            volume.keep(name, data, error)
        tally.executions += 1
        if tally.executions % 50 == 0:
            tally.write(Path(os.environ[_TALLY]))

    def change(data: bytes, most: int, seed: int) -> bytes:
        rng = Random(seed)
        made = (
            target.mutate(rng, data)
            if data and rng.random() < 0.5
            else atheris.Mutate(data, len(data) + 64)
        )
        return bytes(made[:most])

    options = [
        f"-max_total_time={seconds}",
        "-rss_limit_mb=1024",
        "-timeout=30",
        f"-max_len={_LONGEST}",
        f"-dict={dictionary}",
        "-print_final_stats=1",
    ]
    atheris.Setup(
        [sys.argv[0], str(corpus), *options, f"-artifact_prefix={corpus.parent.parent}/{name}-"],
        test,
        custom_mutator=change,
    )
    atheris.Fuzz()


def loop(name: str, seconds: float) -> Tally:
    """Fuzz one target in a process of its own, and return what its inputs came to."""
    from tests.fuzz import volume
    from tests.helpers.paths import ROOT

    began = time.time()
    with tempfile.TemporaryDirectory() as directory:
        tallied = Path(directory, "tally.json")
        environment = {**os.environ, _TALLY: str(tallied)}
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.fuzz.guided",
            name,
            str(max(1, int(seconds))),
        ]
        done = subprocess.run(command, env=environment, capture_output=True, check=False, cwd=ROOT)
        said = done.stderr.decode("utf-8", "replace")
        total = volume.Tally.read(tallied) if tallied.exists() else volume.Tally()
    total.executions = _last(_UNITS, said, total.executions)
    total.memory = _last(_MEMORY, said, 0) * 2**20
    total.seconds = time.time() - began
    if done.returncode:
        hung = "libFuzzer: timeout" in said
        total.hangs += hung
        total.crashes += not hung
        volume.keep(name, b"", f"guided run ended by {done.returncode}: {said[-3000:]}")
    return total


def _last(pattern: re.Pattern[str], text: str, otherwise: int) -> int:
    found: list[Any] = pattern.findall(text)
    return int(found[-1]) if found else otherwise


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
