"""Weather now and in the next days, from Open-Meteo (no account, no key)."""

import json
import re
import time
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from pydantic import BaseModel, Field

from contracts.errors import LinkError, NotFound
from spoke.integrations._fetch import fetch
from strawberry_skills import Skill, Unit, every, skill_method

_MAX_BYTES: Final = 256 * 1024
_FRESH_S: Final = 600.0
"""The service has new values every 15 minutes."""
_KEPT: Final = 20
_COORDINATES: Final = re.compile(r"\s*(-?\d{1,2}(?:\.\d+)?)\s*[,; ]\s*(-?\d{1,3}(?:\.\d+)?)\s*\Z")
_NOW: Final = "temperature_2m,apparent_temperature,relative_humidity_2m,wind_speed_10m,weather_code"
_DAILY: Final = (
    "weather_code,temperature_2m_min,temperature_2m_max,precipitation_sum,precipitation_probability_max"
)
_CONDITIONS: Final = (
    *((0, "clear"), (2, "partly cloudy"), (3, "overcast"), (48, "fog"), (57, "drizzle"), (65, "rain")),
    *((67, "freezing rain"), (77, "snow"), (82, "showers"), (86, "snow showers"), (99, "thunderstorm")),
)
"""The last code of WMO table 4677 of each condition, as far as the service uses it."""
_GERMAN: Final = (
    "clear=klar|partly cloudy=teils bewölkt|overcast=bedeckt|fog=neblig|drizzle=Nieselregen|rain=Regen"
    "|freezing rain=gefrierender Regen|snow=Schnee|showers=Schauer|snow showers=Schneeschauer"
    "|thunderstorm=Gewitter"
)
_RAIN: Final = "{result.lowest} – {result.highest}[, {result.rain_probability} "
_DAY: Final = {
    "en": f"{{result.place}}: {{result.condition}}, {_RAIN}rain].",
    "de": f"{{result.place}}: {{result.condition:{_GERMAN}}}, {_RAIN}Regen].",
}
_asks = partial(skill_method, read_only=True, open_world=True)

Celsius = Annotated[float, Unit("°C")]
Percent = Annotated[int, Unit("%")]
Place = Annotated[str | None, Field(max_length=100)]


@dataclass
class Weather:
    """The weather now."""

    place: str
    condition: str
    temperature: Celsius
    feels_like: Celsius
    humidity: Percent
    wind: Annotated[float, Unit("km/h")]


@dataclass
class Day:
    """The weather of a day."""

    place: str
    day: date
    condition: str
    lowest: Celsius
    highest: Celsius
    rain: Annotated[float, Unit("mm")]
    rain_probability: Percent | None


_Address = Annotated[str, Field(pattern=r"^https?://\S+$")]
_Position = tuple[str, float, float]
"""Name, latitude and longitude."""


class WeatherSkill(Skill):
    """Weather here or elsewhere: now, today, tomorrow and up to 14 days ahead."""

    kind = "weather"
    labels = {
        "de": {"weather": "Wetter jetzt", "today": "Heute", "tomorrow": "Morgen", "forecast": "Vorhersage"}
        | {"place": "Ort", "days": "Tage", "server": "Dienst", "place_server": "Dienst für Ortsnamen"}
        | {"condition": "Wetterlage"},
        "en": {"weather": "Weather now"},
    }

    class Settings(BaseModel):
        """Where the home is. The service learns the place, and nothing else."""

        place: Annotated[str, Field(min_length=1, max_length=100, description="A town, or 52.5, 13.4.")]
        server: _Address = "https://api.open-meteo.com"
        place_server: _Address = "https://geocoding-api.open-meteo.com"

    def __init__(self) -> None:
        self._answers: dict[str, tuple[float, Any]] = {}

    @_asks(
        sentences={
            "en": ["(what is|how is) the weather [like] in {place}"],
            "de": ["wie ist das Wetter in {place}"],
        },
        responses={
            "en": "{result.place}: {result.condition}, {result.temperature}, feels like {result.feels_like}.",
            "de": f"{{result.place}}: {{result.condition:{_GERMAN}}}, {{result.temperature}}, "
            "gefühlt {result.feels_like}.",
        },
    )
    async def weather(self, place: Place = None) -> Weather:
        """Return the weather now.

        Args:
            place: A town; by default where the home is.
        """
        position = await self._position(place)
        found = (await self._ask(position, current=_NOW))["current"]
        temperature, feels_like, humidity, wind, code = (found[name] for name in _NOW.split(","))
        weather = Weather(position[0], _condition(code), temperature, feels_like, round(humidity), wind)
        if place is None:
            self.state("temperature", weather.temperature, unit="°C", device_class="temperature")
            self.state("humidity", weather.humidity, unit="%", device_class="humidity")
            self.state("wind", weather.wind, unit="km/h", device_class="wind_speed")
            self.state("condition", weather.condition)
        return weather

    @every("30m")
    async def _publish(self) -> None:
        await self.weather()

    @_asks(
        sentences={
            "en": ["will it rain today", "what will the weather be [like] today", "do I need an umbrella"],
            "de": ["(regnet es|wird es) heute [noch] [regnen]", "wie wird das Wetter heute"],
        },
        responses=_DAY,
    )
    async def today(self, place: Place = None) -> Day:
        """Return the weather of today: lowest and highest temperature, and how likely rain is.

        Args:
            place: A town; by default where the home is.
        """
        return (await self._days(place, 1))[0]

    @_asks(
        sentences={
            "en": ["will it rain tomorrow", "(what is|how is|what will be) the weather [like] tomorrow"],
            "de": ["regnet es morgen", "wird es morgen regnen", "wie wird das Wetter morgen"],
        },
        responses=_DAY,
    )
    async def tomorrow(self, place: Place = None) -> Day:
        """Return the weather of tomorrow: lowest and highest temperature, and how likely rain is.

        Args:
            place: A town; by default where the home is.
        """
        return (await self._days(place, 2))[1]

    @_asks()
    async def forecast(self, days: Annotated[int, Field(ge=1, le=14)] = 5, place: Place = None) -> list[Day]:
        """Return the weather of the next days, today first.

        Args:
            days: How many, 1 to 14.
            place: A town; by default where the home is.
        """
        return await self._days(place, days)

    async def _days(self, place: str | None, count: int) -> list[Day]:
        position = await self._position(place)
        found = (await self._ask(position, daily=_DAILY, forecast_days=str(count)))["daily"]
        columns = (found["time"], *(found[name] for name in _DAILY.split(",")))
        return [
            Day(position[0], date.fromisoformat(day), _condition(code), low, high, rain or 0, likely)
            for day, code, low, high, rain, likely in zip(*columns, strict=True)
        ]

    async def _position(self, place: str | None) -> _Position:
        wanted = (place or self.settings.place).strip()
        if match := _COORDINATES.match(wanted):
            return "Here" if place is None else wanted, float(match[1]), float(match[2])
        query = urlencode({"name": wanted, "count": "1", "format": "json"})
        found = await self._get(f"{self.settings.place_server}/v1/search?{query}")
        if not found.get("results"):
            raise NotFound("there is no place {name!r}", name=wanted, hint="Name a larger town near it.")
        best = found["results"][0]
        return str(best["name"]), float(best["latitude"]), float(best["longitude"])

    async def _ask(self, position: _Position, **wanted: str) -> Any:
        where = {"latitude": f"{position[1]:.2f}", "longitude": f"{position[2]:.2f}"}
        query = urlencode({**where, "timezone": "auto", **wanted}, safe=",")
        return await self._get(f"{self.settings.server}/v1/forecast?{query}")

    async def _get(self, url: str) -> Any:
        asked_at, answer = self._answers.get(url, (0.0, None))
        if answer is None or time.monotonic() - asked_at > _FRESH_S:
            # Its owner chose the server, which may be one of the home.
            fetched = await fetch(url, max_bytes=_MAX_BYTES, allow_private=True)
            try:
                answer = json.loads(fetched.content)
            except ValueError:
                raise LinkError("the weather service answers with something else than JSON") from None
            if len(self._answers) > _KEPT:
                self._answers.clear()
            self._answers[url] = (time.monotonic(), answer)
        return answer


def _condition(code: int | None) -> str:
    return next((name for last, name in _CONDITIONS if code is not None and code <= last), "unknown")
