"""What is raised where a failure could not be taken back."""

from __future__ import annotations


class NotTakenBackError(OSError):
    """
    The system failed, and then failed to put back what was there: nothing is lost, and the message
    says what has which name.
    """

    def __init__(self, error: OSError, left: str) -> None:
        super().__init__(error.errno, f"{error.strerror}, and it could not be taken back: {left}")
