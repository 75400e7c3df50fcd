"""Where the repository's parts are."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "policytool"
FIXTURES: Final = ROOT / "fixtures"
