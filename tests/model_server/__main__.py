"""``python -m tests.model_server SCRIPT.json``: a scripted model alone."""

import argparse
import json
import sys
import threading
from pathlib import Path

from tests.model_server.script import REPLY
from tests.model_server.server import ScriptedModel


def main() -> None:
    """Serve the script in a file until the process is stopped; print the address first."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.model_server", description="Serve a scripted model."
    )
    parser.add_argument("script", type=Path, help="JSON file: a list of replies, each with its 'kind'")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    script = [REPLY.validate_python(item) for item in json.loads(options.script.read_text("utf-8"))]
    with ScriptedModel(script, port=options.port) as model:
        sys.stdout.write(f"{model.base_url}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
