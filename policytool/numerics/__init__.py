"""The parent's side of TensorFlow: jobs for the child process, its answers, and verdicts."""
