"""Binding of a yes to what was shown: one digest for everything that is approved.

Each answer that shows something to approve has the digest of it, and the route that approves requires it.
"""

import hashlib
import json

from contracts.errors import Conflict


def shown_digest(document: object) -> str:
    """Return the SHA-256 of a JSON document."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def check_shown(given: str, present: str, *, name: str, hint: str) -> None:
    """Check that what is approved is what was shown.

    Args:
        given: Digest that the client was shown.
        present: Digest of what would be approved now.

    Raises:
        Conflict: If it is something else by now.
    """
    if given != present:
        raise Conflict(f"{name} was changed meanwhile", hint=hint)
