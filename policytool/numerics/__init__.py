"""The parent side of TensorFlow runs: jobs for the child process, its answers, and verdicts."""
