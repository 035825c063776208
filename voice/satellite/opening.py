"""Opening of a satellite: the socket to which its server connects."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from voice.satellite.satellite import Names, Satellite
from voice.serving import open_server
from voice.settings import SatelliteSettings

_PORTS: Final = {"wyoming": 10_700, "esphome": 6_053}
"""Those that Home Assistant expects."""


@asynccontextmanager
async def open_satellite(settings: SatelliteSettings, device: Satellite, names: Names) -> AsyncIterator[int]:
    """Serve for as long as the context is open; it yields its port.

    Raises:
        ConfigError: If it cannot listen there, or others than those allowed could use it.
        SpeechError: If a package is not installed.
    """
    if settings.protocol == "wyoming":
        from voice.satellite.wyoming import wyoming_satellite

        serve, protocol = wyoming_satellite(device, names), "Wyoming"
    else:
        from voice.satellite.esphome import esphome_satellite

        serve, protocol = esphome_satellite(device, names), "ESPHome"
    port = _PORTS[settings.protocol] if settings.port is None else settings.port
    async with open_server(
        serve, host=settings.host, port=port, allow=settings.allow, protocol=protocol
    ) as opened:
        yield opened
