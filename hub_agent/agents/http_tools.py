"""Requests to HTTP APIs as tools: to the hosts that the profile names, bounded, and without their secrets."""

import json
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, quote_plus, urlencode, urljoin, urlsplit

from pydantic import TypeAdapter

from agent_core.skills.loading.exposure import LoadedMethod
from agent_core.skills.schema import MethodSchema
from chat.outbound import PrivateAddress, answered
from contracts.devices.registration import Method
from contracts.errors import CallError, ErrorCode, LinkError
from contracts.phrases import Phrase
from contracts.wire import Json
from hub_agent import limits
from hub_agent.agents.profile import SECRET, HttpParameter, HttpTool

if TYPE_CHECKING:
    import httpx

_MASK: Final = "***"


def http_method(tool: HttpTool, *, secret: Callable[[str], str]) -> LoadedMethod:
    """Make the method of a tool.

    Args:
        secret: Returns the value of a variable; asked at each call, so that a new one counts at once.
    """
    required = [name for name, each in tool.parameters.items() if each.required]
    parameters: dict[str, Json] = {
        "type": "object",
        "properties": {name: _schema(each) for name, each in tool.parameters.items()},
        "additionalProperties": False,
        "required": required,
    }
    signature = ", ".join(name if name in required else f"{name}=None" for name in tool.parameters)
    contract = Method(
        name=tool.name,
        signature=f"{tool.name}({signature})"[:2_000],
        doc=tool.description,
        parameters=parameters,
        flags=tool.flags,
        timeout_ms=round(tool.timeout_s * 1000),
    )

    async def request(**arguments: Json) -> str:
        return await _Request(tool, {name: secret(name) for name in tool.secrets}).send(arguments)

    anything: TypeAdapter[Any] = TypeAdapter(Any)
    return LoadedMethod(MethodSchema(contract, dict.fromkeys(tool.parameters, anything), {}), request, None)


def _schema(parameter: HttpParameter) -> dict[str, Json]:
    schema: dict[str, Json] = {"type": parameter.type}
    if parameter.description:
        schema["description"] = parameter.description
    if parameter.enum:
        schema["enum"] = list(parameter.enum)
    return schema


class _Request:
    """One call of a tool."""

    def __init__(self, tool: HttpTool, secrets: Mapping[str, str]) -> None:
        self._tool = tool
        self._secrets = secrets

    async def send(self, arguments: Mapping[str, Json]) -> str:
        """Send the request, and give status and text of the answer.

        Raises:
            CallError: If it is refused or there is no answer; without any secret in it.
        """
        import httpx  # 80 ms that a hub without such tools never needs

        url, query, body = self._filled(arguments)
        headers = {name.lower(): self._with_secrets(text) for name, text in self._tool.headers.items()}
        query |= {name: self._with_secrets(text) for name, text in self._tool.query.items()}
        if query:
            url = f"{url}?{urlencode(query)}"
        try:
            for _ in range(limits.MOST_REDIRECTS + 1):
                status, content, target = await self._send_once(url, headers, body)
                if target is None:
                    return self._shown(status, content)
                before, url = urlsplit(url), self._followed(url, target)
                if urlsplit(url).netloc != before.netloc:
                    # What is for one host is not for another, even if that is allowed.
                    headers = {}
        except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, ValueError) as error:
            # Its text may hold the URL, and with it a secret.
            raise self._failed(f"cannot be asked ({type(error).__name__})") from None
        raise self._failed("redirects without end")

    def _filled(self, arguments: Mapping[str, Json]) -> tuple[str, dict[str, str], bytes | None]:
        """Put arguments where they belong: into the path, the query, and the body."""
        path, query, body = self._tool.url, dict[str, str](), dict[str, Json]()
        for name, parameter in self._tool.parameters.items():
            if name not in arguments:
                continue
            value = arguments[name]
            text = str(value).lower() if isinstance(value, bool) else str(value)
            match parameter.place:
                case "path":
                    if text in ("", ".", ".."):
                        raise CallError(
                            ErrorCode.BAD_ARGUMENTS, "{name} cannot be {text!r}", name=name, text=text
                        )
                    path = path.replace(f"{{{name}}}", quote(text, safe=""))
                case "query":
                    query[name] = text
                case "body":
                    body[name] = value
        has_body = any(each.place == "body" for each in self._tool.parameters.values())
        return path, query, json.dumps(body).encode() if has_body else None

    def _with_secrets(self, text: str) -> str:
        return SECRET.sub(lambda found: self._secrets[found[1]], text)

    async def _send_once(
        self, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[int, bytes, str | None]:
        """Send one request; return status, content, and where it redirects to."""
        headers = {
            "user-agent": "Strawberry",
            **({"content-type": "application/json"} if body is not None else {}),
            **headers,
            # What is compressed could become a thousand times as long.
            "accept-encoding": "identity",
        }
        asked = answered(
            self._tool.method, url, headers=headers, body=body, allow_private=self._tool.allow_private
        )
        try:
            async with asked as response:
                if response.has_redirect_location:
                    return response.status_code, b"", response.headers["location"]
                return response.status_code, await self._content(response), None
        except PrivateAddress as error:
            raise CallError(
                ErrorCode.REFUSED,
                error.message,
                hint="The owner allows that with 'allow_private: true' for this tool in the profile.",
            ) from None
        except LinkError as error:
            raise self._failed(error.message) from None

    async def _content(self, response: "httpx.Response") -> bytes:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise self._failed("sends a compressed answer, which was not asked for")
        content = bytearray()
        async for piece in response.aiter_raw():
            content += piece
            if len(content) > self._tool.max_bytes + limits.TAIL_BYTES:
                break
        return bytes(content)

    def _followed(self, url: str, target: str) -> str:
        """Return where a redirect leads.

        Raises:
            CallError: If it leads to a host that is not allowed, or off TLS.
        """
        before, after = urlsplit(url), urlsplit(urljoin(url, target))
        same = (before.scheme, before.netloc) == (after.scheme, after.netloc)
        secure = after.scheme == "https" or before.scheme == after.scheme == "http"
        if (
            self._tool.method != "GET"
            or not secure
            or not (same or (after.hostname or "") in map(str.lower, self._tool.allowed_hosts))
        ):
            raise self._failed(f"redirects to {(after.hostname or 'nowhere')[:100]}, which is not allowed")
        return after.geturl()

    def _shown(self, status: int, content: bytes) -> str:
        text = self._without_secrets(content.decode("utf-8", "replace"))
        cut = "\n[The answer is longer and was cut.]" if len(content) > self._tool.max_bytes else ""
        text = f"{text[: self._tool.max_bytes]}{cut}"
        if status >= 400:
            raise self._failed(
                Phrase("answered with status {status}: {said}", status=status, said=text[:500])
            )
        return text or f"(status {status}, no text)"

    def _without_secrets(self, text: str) -> str:
        for secret in sorted(self._secrets.values(), key=len, reverse=True):
            if len(secret) >= limits.SHORTEST_SECRET:
                for form in (secret, quote(secret), quote_plus(secret), json.dumps(secret)[1:-1]):
                    text = text.replace(form, _MASK)
        return text

    def _failed(self, what: str) -> CallError:
        return CallError(
            ErrorCode.SKILL_ERROR, "{hostname} {what}", hostname=urlsplit(self._tool.url).hostname, what=what
        )
