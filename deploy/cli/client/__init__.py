"""A client of the HTTP API of hubs and spokes."""

from deploy.cli.client.finding import (
    find_hub,
    find_nearest,
    find_spoke,
    hub_of,
    is_local_spoke,
    nearest_of,
    whole_id,
)
from deploy.cli.client.http import HubClient, NeedsConfirmation, api

__all__ = [
    "HubClient",
    "NeedsConfirmation",
    "api",
    "find_hub",
    "find_nearest",
    "find_spoke",
    "hub_of",
    "is_local_spoke",
    "nearest_of",
    "whole_id",
]
