"""Where is the real OpenCode that the tests run?"""

import os
import shutil
from pathlib import Path

_IN_REPOSITORY = (
    Path(__file__).parent.parent / "node_modules" / "opencode-linux-x64" / "bin" / "opencode"
)
# For its environment: a test's OpenCode is gone before JavaScriptCore's last compiler has paid off.
LIGHT = {"BUN_JSC_useFTLJIT": "0"}


def opencode_binary() -> Path:
    """`GOENT_OPENCODE`, else the one below the repository, else the one on `PATH`."""
    named = os.environ.get("GOENT_OPENCODE")
    found = named or (str(_IN_REPOSITORY) if _IN_REPOSITORY.exists() else shutil.which("opencode"))
    if not found or not Path(found).is_file():
        raise FileNotFoundError(
            f"no OpenCode at {found!r}: set GOENT_OPENCODE, or `npm install opencode-linux-x64`"
        )
    return Path(found)
