"""A client of an Ollama server: its address, its models, and pulls."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from pydantic import SecretStr

from agent_core import limits
from agent_core.models.providers import OLLAMA_PORT, PROVIDERS
from contracts.addresses import DEFAULT_PORTS
from contracts.errors import ConfigError, GatewayError, NotFound

if TYPE_CHECKING:
    import ollama

NO_TOOLS_ADVICE: Final = (
    "take an instruct model that calls tools, of 4 billion parameters or more; "
    "in Ollama's library its page says 'tools'"
)
"""Which kind of model to take in place of one that cannot call tools."""


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


@asynccontextmanager
async def open_client(address: str, key: SecretStr | None = None) -> "AsyncIterator[ollama.AsyncClient]":
    """Open a connection to an Ollama; reaches out only when something is asked."""
    import httpx
    import ollama  # 200 ms that commands without a model never need

    headers = {"authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    timeout = httpx.Timeout(None, connect=limits.OLLAMA_CONNECT_S)
    async with ollama.AsyncClient(host=address, timeout=timeout, headers=headers) as client:
        yield client


class Ollama:
    """Lists and pulls models of one Ollama server."""

    def __init__(self, client: "ollama.AsyncClient", address: str) -> None:
        self._client = client
        self._address = address

    async def models(self) -> list[LocalModel]:
        """List its models by name.

        Raises:
            GatewayError: If nothing answers, or what answers is no Ollama.
        """
        with _translated(self._address):
            listed = (await self._client.list()).models
            loaded = {model.model: model.context_length for model in (await self._client.ps()).models}
            return [
                self._model(model, await self._client.show(model.model or ""), loaded.get(model.model))
                for model in sorted(listed, key=lambda model: model.model or "")
            ]

    async def pull(self, name: str) -> AsyncGenerator[PullStep, None]:
        """Get a model. One that was left in the middle goes on where it was.

        Raises:
            NotFound: If the library has no such model.
            GatewayError: If nothing answers, or the pull failed.
        """
        import ollama

        with _translated(self._address):
            try:
                steps = cast(
                    "AsyncGenerator[ollama.ProgressResponse, None]",
                    await self._client.pull(name, stream=True),
                )
                # Left in the middle, it has to let go of the connection: that is what stops the pull.
                async with aclosing(steps):
                    async for step in steps:
                        yield PullStep(
                            step.status or "", step.digest or "", step.completed or 0, step.total or 0
                        )
            except ollama.ResponseError as error:
                if _ABSENT in str(error.error):
                    raise NotFound(
                        "Ollama's library has no model {name}",
                        name=name,
                        hint="Look for its name at ollama.com/library.",
                    ) from None
                raise

    def _model(self, listed: Any, shown: "ollama.ShowResponse", loaded: int | None) -> LocalModel:
        details = listed.details
        return LocalModel(
            name=listed.model or "",
            size=int(listed.size or 0),
            parameters=(details.parameter_size if details else None) or "",
            quantization=(details.quantization_level if details else None) or "",
            context_length=context_length_of(shown),
            is_small=0
            < ((shown.modelinfo or {}).get("general.parameter_count") or 0)
            < limits.SMALL_MODEL_PARAMETERS,
            calls_tools=None if shown.capabilities is None else "tools" in shown.capabilities,
            loaded_context=loaded,
        )


@asynccontextmanager
async def open_ollama(address: str, key: SecretStr | None = None) -> AsyncIterator[Ollama]:
    async with open_client(address, key) as client:
        yield Ollama(client, address)


def context_length_of(shown: "ollama.ShowResponse") -> int | None:
    """Find the tokens that a model was trained for; each architecture names them itself."""
    info = shown.modelinfo or {}
    length = info.get(f"{info.get('general.architecture')}.context_length")
    return length if isinstance(length, int) and length > 0 else None


@contextmanager
def _translated(address: str) -> Iterator[None]:
    """Translate errors of the client library."""
    import httpx
    import ollama

    try:
        yield
    except (ConnectionError, httpx.ConnectError, httpx.ConnectTimeout):
        raise GatewayError(
            "no Ollama answers at {address}",
            address=address,
            hint="Start it with 'ollama serve', or set OLLAMA_HOST to its address; "
            "ollama.com/download has it.",
        ) from None
    except ollama.ResponseError as error:
        raise GatewayError(
            "Ollama at {address} says: {error}", address=address, error=error.error, hint="Try it again."
        ) from None
    except (httpx.HTTPError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise GatewayError(
            "the server at {address} is not Ollama: {reason}",
            address=address,
            reason=reason,
            hint="Check the address.",
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
            "{variable} is not an address: {value}",
            variable=ADDRESS_VARIABLE,
            value=value,
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
