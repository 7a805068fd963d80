"""The real OpenCode behind somebody who makes no session before a login was asked for.

Its first argument is the program; the others are passed on.
"""

import json
import subprocess
import sys
from threading import Thread


def main() -> None:
    command = sys.argv[1:]
    if "acp" not in command:
        sys.exit(subprocess.run(command, check=False).returncode)
    logged_in = False
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as behind:
        assert behind.stdin and behind.stdout
        answers = behind.stdout
        Thread(target=lambda: [say(line) for line in answers], daemon=True).start()
        for line in sys.stdin.buffer:
            asked = json.loads(line)
            if asked.get("method") == "session/new" and not logged_in:
                error = {"code": -32000, "message": "Authentication required"}
                refusal = {"jsonrpc": "2.0", "id": asked["id"], "error": error}
                say(json.dumps(refusal).encode() + b"\n")
                continue
            logged_in = logged_in or asked.get("method") == "authenticate"
            behind.stdin.write(line)
            behind.stdin.flush()
        behind.stdin.close()


def say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
