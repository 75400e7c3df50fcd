"""The child process as its parent sees it: answers, crashes, invalid output, and its end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from policytool.numerics import workers
from policytool.numerics.workers import Interpreter, Worker, accepted_backends
from policytool.support.errors import WorkerError
from policytool.support.processes import interrupts
from tests.helpers.marks import ALONE, THOROUGH

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = ALONE


FAKE: Final = """
import json, os, signal, subprocess, sys, tempfile, time
stream = os.fdopen(int(sys.argv[1]), "w")
def tell(event):
    stream.write(event if isinstance(event, str) else json.dumps(event))
    stream.write(chr(10))
    stream.flush()
for line in sys.stdin:
    job = json.loads(line)
    what = job["do"]
    if what == "answer":
        tell({"step": "working"})
        place = {"pid": os.getpid(), "cwd": os.getcwd(), "temporary": tempfile.gettempdir()}
        tell({"result": {**place, "environment": sorted(os.environ), "limit": sys.argv[2:]}})
    elif what == "refuse":
        text = job.get("text", "as it is")
        tell({"error": {"code": job["code"], "message": text, "trace": "Traceback"}})
    elif what == "exit":
        print("the last words", file=sys.stderr, flush=True)
        sys.exit(7)
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "garbage":
        tell(job["text"])
    elif what == "sleep":
        tell({"step": "asleep"})
        time.sleep(60)
    elif what == "leave":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        tell({"result": {"pid": child.pid}})
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a child script with prepared behaviour and without TensorFlow."""
    path = tmp_path / "fake.py"
    path.write_text(FAKE, encoding="utf-8")
    return path


@pytest.fixture
def worker(script: Path) -> Iterator[Worker]:
    """Return a worker with the fake child."""
    with Worker(Interpreter(script=script)) as made:
        yield made


def is_gone(pid: int) -> bool:
    """Return whether a process ends soon; a zombie counts as ended."""
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            if (
                Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
                in "ZX"
            ):
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_one_child_does_one_job_after_the_other(script: Path) -> None:
    """A child starts with the first job, runs the next jobs too, and reports its progress."""
    steps: list[str] = []
    with Worker(Interpreter(script=script), steps.append) as worker:
        first, second = (worker.run({"do": "answer"}) for _ in range(2))
        assert first["pid"] == second["pid"] != os.getpid()
        assert Path(f"/proc/{first['pid']}").exists()
    assert is_gone(first["pid"])
    assert steps == ["working", "", "working", ""]


def test_the_child_gets_an_empty_directory_and_no_credentials(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The child runs in its own empty directory, which is removed at its end, and gets only
    environment variables that locate libraries.
    """
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    answer = worker.run({"do": "answer"})
    assert "SECRET_TOKEN" not in answer["environment"]
    assert {"CUDA_VISIBLE_DEVICES", "PATH"} <= set(answer["environment"])
    assert Path(answer["cwd"]) != Path.cwd()
    assert not list(Path(answer["cwd"]).iterdir())
    assert Path(answer["temporary"]).samefile(
        answer["cwd"]
    )  # what a child that is ended leaves goes with it
    worker.close()
    assert not Path(answer["cwd"]).exists()


def test_environment_of_the_child_has_only_known_variables() -> None:
    """The child gets variables of backends and of devices, and no unknown ones."""
    kept = workers.environment(
        {
            "PATH": "/bin",
            "TF_DETERMINISTIC_OPS": "1",
            "AWS_SECRET_ACCESS_KEY": "x",
            "LD_LIBRARY_PATH": "/cuda",
            "TF_CPP_MIN_LOG_LEVEL": "0",
            "JAX_PLATFORMS": "cpu",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        }
    )
    assert kept == {
        "PATH": "/bin",
        "TF_DETERMINISTIC_OPS": "1",
        "LD_LIBRARY_PATH": "/cuda",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "JAX_PLATFORMS": "cpu",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "PYTHONWARNINGS": "ignore",
        "PYTHONUTF8": "1",
    }


def test_a_refusal_leaves_the_child_alive(worker: Worker) -> None:
    """The error has the child's message and code, and the child runs the next job."""
    pid = worker.run({"do": "answer"})["pid"]
    with pytest.raises(WorkerError, match="as it is") as caught:
        worker.run({"do": "refuse", "code": "foreign-signature"})
    assert (caught.value.code, caught.value.details, caught.value.ended) == (
        "foreign-signature",
        "Traceback",
        False,
    )
    assert worker.run({"do": "answer"})["pid"] == pid


def test_a_refusal_names_copies_without_their_private_directory(worker: Worker) -> None:
    """Messages of TensorFlow have the path of the copy, which is removed at the end."""
    with interrupts.temporary_directory() as private:
        text = f"OSError: no file {private}/ab_c1/model/variables/variables, none"
        with pytest.raises(WorkerError, match="no file model/variables/variables, none"):
            worker.run({"do": "refuse", "code": "not-loadable", "text": text})


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("no-tensorflow", "has no TensorFlow"),
        ("no-tf-keras", "TensorFlow, but not tf-keras"),
        ("no-keras", "TensorFlow, but not Keras 3"),
    ],
)
def test_missing_library_error_suggests_the_installation(
    worker: Worker, code: str, words: str
) -> None:
    """The message contains the interpreter, the extra and --python."""
    with pytest.raises(WorkerError, match=words) as caught:
        worker.run({"do": "refuse", "code": code})
    assert "pip install 'policytool[check]'" in str(caught.value)
    assert sys.executable in str(caught.value)
    assert "--python" in str(caught.value)


@pytest.mark.parametrize(
    ("backend", "extras"), [("auto", ("check", "jax", "torch")), ("torch", ("torch",))]
)
def test_missing_backend_error_names_the_extras(
    script: Path, backend: str, extras: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    interpreter = Interpreter(script=script, backend=backend)
    with Worker(interpreter) as worker, pytest.raises(WorkerError) as caught:
        worker.run({"do": "refuse", "code": "no-backend"})
    assert re.findall(r"policytool\[(\w+)\]", str(caught.value)) == list(extras)


def test_keras_2_needs_tensorflow(script: Path) -> None:
    """
    The error does not start a child. Of a conversion, the side in Keras 2 runs on TensorFlow, and
    the other on the chosen backend.
    """
    job = {"do": "answer", "reference": {"family": "keras2"}, "candidate": {"family": "keras3"}}
    with Worker(Interpreter(script=script, backend="jax")) as worker:
        with pytest.raises(WorkerError, match="only Keras 3 models run on JAX"):
            worker.run(job)
        assert worker.run({"do": "answer", "family": "keras3"})
        assert worker.run({"do": "answer", "family": "keras2"}, side="source")


@pytest.mark.parametrize(
    ("choice", "variable", "configured", "first"),
    [
        ("auto", None, None, "tensorflow"),
        ("auto", None, "torch", "torch"),
        ("auto", "jax", "torch", "jax"),
        ("auto", "numpy", "openvino", "tensorflow"),
        ("tensorflow", "jax", "torch", "tensorflow"),
    ],
)
def test_backend_follows_the_variable_and_then_the_settings_of_keras(
    tmp_path: Path, choice: str, variable: str | None, configured: str | None, first: str
) -> None:
    """An explicit backend is the only one that is accepted."""
    environment = {"KERAS_HOME": str(tmp_path), "KERAS_BACKEND": variable or ""}
    if configured is not None:
        (tmp_path / "keras.json").write_text(json.dumps({"backend": configured}), encoding="utf-8")
    accepted = accepted_backends(choice, environment)
    assert accepted[0] == first
    assert len(accepted) == (3 if choice == "auto" else 1)


@pytest.mark.parametrize(
    ("do", "words"),
    [("exit", "exited with code 7: the last words"), ("kill", "was terminated by SIGKILL")],
)
def test_crash_is_a_one_line_error_and_the_next_job_gets_a_new_child(
    worker: Worker, do: str, words: str
) -> None:
    """The error contains the observed cause."""
    pid = worker.run({"do": "answer"})["pid"]
    with pytest.raises(WorkerError, match=words) as caught:
        worker.run({"do": do})
    assert caught.value.code == "worker-crashed"
    assert "\n" not in str(caught.value)
    assert worker.run({"do": "answer"})["pid"] != pid


def test_a_child_that_ends_before_the_first_job_is_a_crash(tmp_path: Path) -> None:
    """A child that ends before the first job is reported as a crash with its last output."""
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no way')\n", encoding="utf-8")
    with Worker(Interpreter(script=script)) as worker, pytest.raises(WorkerError, match="no way"):
        worker.run({"do": "answer"})


@pytest.mark.parametrize(
    "text", ["not json", "[]", '{"result": 1}', '{"error": {"code": 1}}', "[" * 100_000]
)
def test_garbage_is_no_answer(worker: Worker, text: str) -> None:
    """Invalid output ends the child; the message has a shortened copy of it."""
    with pytest.raises(WorkerError) as caught:
        worker.run({"do": "garbage", "text": text})
    assert caught.value.code == "worker-garbage"
    assert len(str(caught.value)) < 500


@THOROUGH
def test_job_above_its_time_limit_ends_the_child(script: Path) -> None:
    """A job that exceeds its time limit ends the child."""
    with Worker(Interpreter(script=script, timeout=0.5)) as worker:
        pid = worker.run({"do": "answer"})["pid"]
        start = time.monotonic()
        with pytest.raises(WorkerError, match=r"after 0\.5 s;") as caught:
            worker.run({"do": "sleep"})
        assert caught.value.code == "worker-timeout"
        assert time.monotonic() - start < 20
        assert is_gone(pid)


@pytest.mark.parametrize("python", ["/nowhere/python", "/", "no-such-interpreter"])
def test_interpreter_that_cannot_run_is_an_error_with_the_option(script: Path, python: str) -> None:
    """An interpreter that cannot be run is an error with the option that selected it."""
    with (
        Worker(Interpreter(python=python, script=script)) as worker,
        pytest.raises(
            WorkerError, match="specify an interpreter that has TensorFlow: --python"
        ) as caught,
    ):
        worker.run({"do": "answer"})
    assert caught.value.code == "no-python"


def test_paths_are_meant_from_where_the_user_is(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter and PYTHONPATH can be relative to the user's directory."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    with Worker(Interpreter(python="bin/python", script=script)) as worker:
        assert worker.run({"do": "answer"})["pid"]
    assert (
        workers.environment({"PYTHONPATH": f"own{os.pathsep}/abs"})["PYTHONPATH"]
        == f"{tmp_path / 'own'}{os.pathsep}/abs"
    )


def test_process_started_by_the_child_ends_with_the_child(script: Path) -> None:
    """A process that the child started ends with the child."""
    with Worker(Interpreter(script=script)) as worker:
        pid = worker.run({"do": "leave"})["pid"]
        assert Path(f"/proc/{pid}").exists()
    assert is_gone(pid)


@THOROUGH
def test_ctrl_c_ends_the_child(script: Path) -> None:
    """Ctrl-C ends the child, raises KeyboardInterrupt, and leaves no process."""
    pids = []

    def interrupt(step: str) -> None:
        if step == "asleep":
            raise KeyboardInterrupt

    with Worker(Interpreter(script=script), interrupt) as worker:
        pids.append(worker.run({"do": "answer"})["pid"])
        with pytest.raises(KeyboardInterrupt):
            worker.run({"do": "sleep"})
        assert is_gone(pids[0])


def test_the_memory_limit_is_handed_on(script: Path) -> None:
    """The child receives the memory limit."""
    with Worker(Interpreter(script=script, memory_limit=2**33)) as worker:
        assert worker.run({"do": "answer"})["limit"] == [str(2**33)]


REAL: Final = workers.RUNTIME


def test_real_child_without_tensorflow_is_a_one_line_error() -> None:
    """The real child without TensorFlow is a one-line error with the extra to install."""
    if (
        subprocess.run(
            [sys.executable, "-c", "import tensorflow"], capture_output=True, check=False
        ).returncode
        == 0
    ):
        pytest.skip("this interpreter has TensorFlow")
    with Worker(Interpreter()) as worker, pytest.raises(WorkerError) as caught:
        worker.run(
            {"job": "reexport", "path": [], "custom_objects": [], "registered": [], "trust": False}
        )
    assert caught.value.code == "no-tensorflow"
    assert "policytool[check]" in str(caught.value)


def test_real_child_ends_if_the_parent_is_killed(tmp_path: Path) -> None:
    """The real child ends at the end of its stdin if its parent is killed."""
    ours, theirs = os.pipe()
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(REAL), str(theirs)], stdin=subprocess.PIPE, pass_fds=(theirs,)
    )
    os.close(theirs)
    try:
        assert process.stdin is not None
        job = {
            "job": "reexport",
            "path": [str(tmp_path)],
            "custom_objects": ["slow"],
            "registered": [],
            "trust": False,
        }
        process.stdin.write(json.dumps(job).encode() + b"\n")
        process.stdin.close()
        assert process.wait(20) == 0
    finally:
        os.close(ours)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is of private memory there")
def test_real_child_applies_the_memory_limit(tmp_path: Path) -> None:
    """If importing TensorFlow exceeds the limit, the error suggests to double it."""
    (tmp_path / "tensorflow.py").write_text("memory = bytearray(2**30)\n", encoding="utf-8")
    job = {"job": "reexport", "custom_objects": [], "registered": [], "trust": False}
    with (
        Worker(Interpreter(memory_limit=2**28)) as worker,
        pytest.raises(WorkerError, match="tensorflow-bytes=512MiB") as caught,
    ):
        worker.run({**job, "path": [str(tmp_path)]})
    assert caught.value.code == "memory"
