"""
Migrate one model to mixed_bfloat16 and tell how long the write and the reading back took: ``python
migrate_once.py SOURCE TARGET RESULT``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from policytool.commands.arguments.migrate import MigrateArguments
from policytool.commands.migrate_all import migrate_one

source, target, result = sys.argv[1:]
done = migrate_one(
    source, MigrateArguments(to="mixed_bfloat16", output=target, existing="replace", verify=False)
)
if done.written is None:
    sys.exit(f"{source} was not written: {done.status}")
Path(result).write_text(
    json.dumps([done.written.write_seconds, done.written.compare_seconds]), encoding="utf-8"
)
