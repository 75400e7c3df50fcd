"""``python -m policytool``."""

from __future__ import annotations

from policytool.cli import main

if __name__ == "__main__":
    main()
