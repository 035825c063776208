"""``strawberry doctor``: what works, what does not, and what to do."""

import argparse
from typing import Any

from deploy.cli.client import hub_of
from deploy.cli.terminal.output import Output
from deploy.doctor.doctor import examine
from deploy.home.directory import Home
from deploy.logs.terminal import visible

_PATIENCE_S = 10.0


def doctor(options: argparse.Namespace) -> int:
    """Print every check; the exit code is 1 where something does not work."""
    home = Home.named()

    def health() -> dict[str, Any]:
        client = hub_of(options)
        answer: dict[str, Any] = client.request("GET", "/api/health", timeout=_PATIENCE_S)
        return answer

    checks = []
    for check in examine(home, health=health, elsewhere=options.hub is not None):
        checks.append(check)
        if not options.json:
            print(visible(f"{'ok  ' if check.ok else 'FAIL'}  {check.check}: {check.detail}"))
            if check.hint:
                print(visible(f"      {check.hint}"))
    if options.json:
        Output(as_json=True).result([check.as_dict() for check in checks])
    return 0 if all(check.ok for check in checks) else 1
