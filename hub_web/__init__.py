"""The web UI: pages over the hub's own HTTP API, with the rights of the person who looks at them.

Nothing here imports NiceGUI until the hub serves: see `open_web`.
"""

from hub_web.loading import open_web

__all__ = ["open_web"]
