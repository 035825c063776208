"""Weather, from a server that answers as Open-Meteo does."""

import asyncio
import json
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from contracts.errors import CallError
from tests.spoke.integrations.conftest import Answer, Request

NOW = {
    "temperature_2m": 11.4,
    "apparent_temperature": 9.8,
    "relative_humidity_2m": 71,
    "wind_speed_10m": 14.0,
    "weather_code": 61,
}
DAYS: dict[str, list[Any]] = {
    "time": ["2026-11-28", "2026-11-29", "2026-11-30"],
    "weather_code": [0, 95, None],
    "temperature_2m_min": [1.0, 2.5, 3.0],
    "temperature_2m_max": [8.0, 9.5, 7.0],
    "precipitation_sum": [0.0, 12.3, None],
    "precipitation_probability_max": [0, 90, None],
}


def open_meteo(request: Request) -> Answer:
    url = urlsplit(request.path)
    query = {name: value[0] for name, value in parse_qs(url.query).items()}
    match url.path:
        case "/v1/search":
            known = {"Köln": {"name": "Köln", "latitude": 50.9333, "longitude": 6.95}}
            found = [known[query["name"]]] if query["name"] in known else []
            return (
                200,
                "application/json",
                json.dumps({"results": found} if found else {"generationtime_ms": 1}),
            )
        case "/v1/forecast" if "current" in query:
            return 200, "application/json", json.dumps({"current": NOW})
        case "/v1/forecast":
            days = int(query["forecast_days"])
            return 200, "application/json", json.dumps({"daily": {k: v[:days] for k, v in DAYS.items()}})
    return 404, "", ""


async def test_the_weather_of_the_home_and_elsewhere(opened, web):
    web.answer = open_meteo
    where = {"server": web.url, "place_server": web.url, "place": "52.52, 13.41"}
    async with opened("weather", **where) as weather:
        async with asyncio.timeout(60):
            while weather.sink.states.get("WeatherSkill/condition") != "rain":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert weather.sink.states["WeatherSkill/temperature"] == 11.4
        asked = len(web.asked)
        assert (await weather.call("weather"))["place"] == "Here"
        assert len(web.asked) == asked
        assert (await weather.call("tomorrow", place="Köln"))["highest"] == 9.5
        assert "latitude=50.93&longitude=6.95" in web.asked[-1].path
        assert [day["condition"] for day in await weather.call("forecast", days=3)] == [
            "clear",
            "thunderstorm",
            "unknown",
        ]
        with pytest.raises(CallError, match="no place 'Atlantis'"):
            await weather.call("weather", place="Atlantis")


async def test_a_service_that_fails_is_named(opened, web):
    web.serve(v1=(200, "", ""))
    async with opened("weather", server=web.url, place_server=web.url, place="1,2") as weather:
        with pytest.raises(CallError, match=r"127\.0\.0\.1: answers with status 404"):
            await weather.call("weather")
        web.answer = lambda request: (200, "text/html", "<p>Maintenance")
        with pytest.raises(CallError, match="something else than JSON"):
            await weather.call("weather")


SAID = [
    ("en", "What's the weather like?", "Here: rain, 11.4 °C, feels like 9.8 °C."),
    ("de", "wie ist das Wetter", "Here: Regen, 11,4 °C, gefühlt 9,8 °C."),
    ("en", "how is the weather in Köln", "Köln: rain, 11.4 °C, feels like 9.8 °C."),
    ("en", "will it rain tomorrow", "Here: thunderstorm, 2.5 °C – 9.5 °C, 90 % rain."),
    ("de", "wie wird das Wetter morgen", "Here: Gewitter, 2,5 °C – 9,5 °C, 90 % Regen."),
    ("de", "regnet es heute", "Here: klar, 1 °C – 8 °C, 0 % Regen."),
]


async def test_everyday_questions_have_an_answer_without_a_model(opened, web):
    web.answer = open_meteo
    async with opened("weather", server=web.url, place_server=web.url, place="1,2") as weather:
        for language, text, answer in SAID:
            assert await weather.answer(text, language) == answer, text
