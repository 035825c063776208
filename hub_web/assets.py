"""Our own static files, addressed by their content, so that browsers keep them."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

ASSETS: Final = "/_strawberry/"
"""Path of all of them."""

KEPT: Final = "public, max-age=31536000, immutable"
"""``Cache-Control`` of what is addressed by its content or its version."""

_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def _content(name: str) -> bytes:
    return (files("hub_web") / "static" / name).read_bytes()


@cache
def _names() -> frozenset[str]:
    return frozenset(file.name for file in (files("hub_web") / "static").iterdir())


@cache
def asset(name: str, base_path: str = "") -> str:
    """Return the path of a file in a page."""
    return f"{base_path}{ASSETS}{hashlib.sha256(_content(name)).hexdigest()[:16]}/{name}"


async def serve_asset(request: Request) -> Response:
    """Answer a request for one."""
    name = request.path_params["name"]
    if name not in _names():
        return Response(status_code=404)
    kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
    return Response(_content(name), media_type=kind, headers={"cache-control": KEPT})
