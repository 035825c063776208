"""A client of an Ollama server: its address, its models, and pulls."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent_core.models.providers import OLLAMA_PORT, PROVIDERS
from contracts.addresses import DEFAULT_PORTS
from contracts.errors import ConfigError, GatewayError, NotFound
from contracts.wire import Json

if TYPE_CHECKING:
    import httpx

NO_TOOLS_ADVICE: Final = (
    "take an instruct model whose page in Ollama's library says 'tools', of 4 billion parameters or more"
)
"""Which kind of model to take in place of one that cannot call tools."""

_CONNECT_S: Final = 3.0

_SMALL: Final = 8_000_000_000
"""Parameters below which a model is given skills as tools in place of code."""

ADDRESS_VARIABLE: Final = "OLLAMA_HOST"

_ABSENT: Final = "file does not exist"


@dataclass(frozen=True)
class LocalModel:
    """A model that Ollama has.

    Attributes:
        size: Bytes on the disk.
        parameters: As Ollama writes it, for example ``4.0B``.
        context_length: Tokens that it was trained for; None where it does not say.
        calls_tools: None where this Ollama is too old to report it.
        is_small: Whether a model of this size writes code badly.
        loaded_context: Tokens of the context that it runs with now; None where it is not in memory.
    """

    name: str
    size: int
    parameters: str
    quantization: str
    context_length: int | None
    calls_tools: bool | None
    is_small: bool
    loaded_context: int | None = None


@dataclass(frozen=True)
class PullStep:
    """How far a pull has come.

    Attributes:
        status: In Ollama's words.
        digest: The file that comes right now; empty where none does.
        completed: Bytes of it that are there.
        total: Bytes of it; 0 where no file comes.
    """

    status: str
    digest: str = ""
    completed: int = 0
    total: int = 0


class Ollama:
    """Lists and pulls models of one Ollama server."""

    def __init__(self, client: "httpx.AsyncClient", address: str) -> None:
        self._client = client
        self._address = address

    async def models(self) -> list[LocalModel]:
        """List its models by name.

        Raises:
            GatewayError: If nothing answers, or what answers is no Ollama.
        """
        with _translated(self._address):
            listed = (await self._asked("GET", "/api/tags"))["models"]
            running = (await self._asked("GET", "/api/ps"))["models"]
            loaded = {model["model"]: model.get("context_length") for model in running}
            return [
                _model(model, await self._asked("POST", "/api/show", model=model["model"]), loaded)
                for model in sorted(listed, key=lambda model: str(model["model"]))
            ]

    async def pull(self, name: str) -> AsyncGenerator[PullStep, None]:
        """Get a model. One that was left in the middle goes on where it was.

        Raises:
            NotFound: If the library has no such model.
            GatewayError: If nothing answers, or the pull failed.
        """
        with _translated(self._address):
            # Left in the middle, it has to let go of the connection: that is what stops the pull.
            async with self._client.stream("POST", "/api/pull", json={"model": name}) as response:
                if response.status_code != 200:
                    self._fail(json.loads(await response.aread()), pulled=name)
                async with aclosing(cast("AsyncGenerator[str, None]", response.aiter_lines())) as lines:
                    async for line in lines:
                        step = json.loads(line)
                        if "error" in step:
                            self._fail(step, pulled=name)
                        yield PullStep(
                            step.get("status", ""),
                            step.get("digest", ""),
                            step.get("completed", 0),
                            step.get("total", 0),
                        )

    async def _asked(self, method: str, path: str, **body: Json) -> dict[str, Any]:
        response = await self._client.request(method, path, json=body or None)
        said: dict[str, Any] = response.json()
        if response.status_code != 200:
            self._fail(said)
        return said

    def _fail(self, said: dict[str, Any], *, pulled: str = "") -> NoReturn:
        if pulled and _ABSENT in said["error"]:
            raise NotFound(
                f"Ollama's library has no model {pulled}", hint="Look for its name at ollama.com/library."
            )
        raise GatewayError(f"Ollama at {self._address} says: {said['error']}", hint="Try it again.")


def _model(listed: dict[str, Any], shown: dict[str, Any], loaded: Mapping[str, int | None]) -> LocalModel:
    details, capabilities = listed.get("details") or {}, shown.get("capabilities")
    return LocalModel(
        name=listed["model"],
        size=int(listed.get("size") or 0),
        parameters=details.get("parameter_size") or "",
        quantization=details.get("quantization_level") or "",
        context_length=context_length_of(shown),
        is_small=0 < ((shown.get("model_info") or {}).get("general.parameter_count") or 0) < _SMALL,
        calls_tools=None if capabilities is None else "tools" in capabilities,
        loaded_context=loaded.get(listed["model"]),
    )


@asynccontextmanager
async def open_ollama(address: str, key: SecretStr | None = None) -> AsyncIterator[Ollama]:
    """Open an Ollama for questions about its models; reaches out only when something is asked."""
    import httpx  # 80 ms that commands without a model never need

    headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    timeout = httpx.Timeout(None, connect=_CONNECT_S)
    async with httpx.AsyncClient(base_url=address, timeout=timeout, headers=headers) as client:
        yield Ollama(client, address)


def context_length_of(shown: Mapping[str, Any]) -> int | None:
    """Find the tokens that a model was trained for; each architecture names them itself."""
    info = shown.get("model_info") or {}
    length = info.get(f"{info.get('general.architecture')}.context_length")
    return length if isinstance(length, int) and length > 0 else None


@contextmanager
def _translated(address: str) -> Iterator[None]:
    """Translate what goes wrong on the way, or with what is no answer of Ollama."""
    import httpx

    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout):
        raise GatewayError(
            f"no Ollama answers at {address}",
            hint="Start it with 'ollama serve', or set OLLAMA_HOST to its address; "
            "ollama.com/download has it.",
        ) from None
    except (httpx.HTTPError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GatewayError(
            f"the server at {address} is not Ollama: {reason}", hint="Check the address."
        ) from None


def ollama_address(variables: Mapping[str, str]) -> str:
    """Return the address at which Ollama is found: what ``OLLAMA_HOST`` says, read as Ollama reads it.

    A host, a port, both, or a URL will do; a server that listens on all addresses is asked on loopback.

    Raises:
        ConfigError: If the variable holds none of these.
    """
    value = variables.get(ADDRESS_VARIABLE, "").strip().strip("\"'")
    if not value:
        return PROVIDERS["ollama"].address
    scheme, separator, rest = value.partition("://")
    if not separator:
        scheme, rest = "http", value
    default = DEFAULT_PORTS.get(scheme) if separator else OLLAMA_PORT
    try:
        parts = urlsplit(f"{scheme}://{rest}")
        port = parts.port or default
    except ValueError:
        port, parts = None, urlsplit("")
    if port is None:
        raise ConfigError(
            f"{ADDRESS_VARIABLE} is not an address: {value}",
            hint="Write a host, host:port, or http://host:port.",
        )
    return f"{scheme}://{_host(parts.hostname)}:{port}{parts.path.rstrip('/')}"


def _host(name: str | None) -> str:
    if not name:
        return "127.0.0.1"
    try:
        address = ip_address(name)
    except ValueError:
        return name
    if address.is_unspecified:
        return "[::1]" if isinstance(address, IPv6Address) else "127.0.0.1"
    return f"[{name}]" if isinstance(address, IPv6Address) else name
