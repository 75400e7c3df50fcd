"""The command ``policytool``, and ``python -m policytool``."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line."""
    # Until the command line handles Ctrl-C, it ends the process without a traceback.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from policytool.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
