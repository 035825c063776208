"""The hub as an MCP server: three tools, what there is in the home as resources, agents as prompts."""

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast
from urllib.parse import unquote

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import to_json
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from agent_core.gateway.protocol import ToolCall
from agent_core.prompt import joined
from agent_core.tools.toolset import TOOL_SPECS, ToolOutcome
from agent_core.turn import TurnContext
from chat.operations import Operation
from contracts import own_version
from contracts.chat.messages import ConfirmationWanted, SkillCalled
from contracts.errors import Forbidden, StrawberryError
from contracts.validation import validated
from hub_agent.agents.agent import ASSISTANT
from hub_agent.parts import HubParts
from hub_live.captures.operations import file, list_captures, list_files
from hub_live.world.operations import look
from hub_registry.access.bearer import Bearer
from hub_registry.http.devices import list_devices, show_device
from hub_registry.http.skills import describe_skill, list_skills
from hub_server import limits
from hub_server.mcp.runs import BEARER, ToolRun, ToolRuns

_INSTRUCTIONS: Final = (
    "Strawberry is the assistant of a home. Find skills with search_skills, read how one is called with "
    "describe_function, and call them by their paths in python_exec."
)
_RESOURCES: Final[dict[str, tuple[Operation[Any, Any], str]]] = {
    "strawberry://devices": (list_devices, "The devices of the home"),
    "strawberry://skills": (list_skills, "What the devices can do"),
    "strawberry://states": (look, "The state of everything in the home that is known"),
    "strawberry://captures": (list_captures, "Recordings of topics"),
    "strawberry://devices/{name}": (show_device, "One device"),
    "strawberry://skills/{path}": (describe_skill, "The documentation of a skill or method"),
    "strawberry://states/{name}": (look, "The state of what has this name"),
    "strawberry://captures/{capture}": (list_files, "The files of a recording"),
    "strawberry://captures/{capture}/{name}": (file, "One file of a recording, up to 1 MB"),
}
"""The operations that are read as resources, with their parameters in braces."""
_Context = ServerRequestContext[Any, Any]


@dataclass(eq=False)
class McpServer:
    """The server, and what its handlers work with."""

    parts: HubParts
    runs: ToolRuns

    def __post_init__(self) -> None:
        server: Server[Any] = Server(
            "strawberry",
            title="Strawberry",
            version=own_version(),
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )
        # Host, Origin and the size of a body were checked by the guard in front of the application.
        self.manager = StreamableHTTPSessionManager(server)

    async def handle(self, scope: Scope, receive: Receive, send: Send, *, token: str) -> None:
        """Serve a request whose bearer is known; a session answers to the token only that began it."""
        user = AuthenticatedUser(AccessToken(token="", client_id=token, scopes=[]))
        await self.manager.handle_request({**scope, "user": user}, receive, send)

    async def end(self, session: str, *, token: str) -> None:
        """End a session as its client would."""
        headers = [(b"mcp-session-id", session.encode()), (b"accept", b"application/json")]
        scope = {"type": "http", "method": "DELETE", "path": "/mcp", "headers": headers, "query_string": b""}

        async def empty() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def unread(_: Any) -> None:
            """Ignore the answer."""

        await self.handle(scope, empty, unread, token=token)

    async def _list_tools(self, context: _Context, _: Any) -> types.ListToolsResult:
        bearer = _bearer(context)
        tools = [
            types.Tool(
                name=spec.name,
                description=spec.description,
                input_schema=dict(spec.parameters),
                annotations=self._annotations(bearer)
                if spec.name == "python_exec"
                else types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            )
            for spec in TOOL_SPECS
            if spec.name != "python_exec" or "call" in bearer.claims.scopes
        ]
        # What it may do, and so its annotations, changes with the devices.
        return types.ListToolsResult(tools=tools, ttl_ms=0, cache_scope="private")

    def _annotations(self, bearer: Bearer) -> types.ToolAnnotations:
        """Return for ``python_exec`` the worst that a skill which this person may call does."""
        directory = self.parts.registry.directory.seen_by(bearer.user.id)
        flags = [
            method.flags
            for skills in (*(entry.skills for entry in directory.entries()), directory.hub.skills)
            for skill in skills.values()
            for method in skill.methods.values()
            if method.flags.read_only or not bearer.user.read_only
        ]
        return types.ToolAnnotations(
            read_only_hint=bearer.user.read_only,
            destructive_hint=any(each.destructive or each.confirm or each.unknown for each in flags),
            idempotent_hint=False,
            open_world_hint=any(each.open_world for each in flags),
        )

    async def _call_tool(
        self, context: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        bearer = _bearer(context)
        try:
            run = self._run(context, params, bearer)
            return await self._followed(context, run)
        except StrawberryError as error:
            return _result(
                f"Error: {error.message}\nHint: {error.hint}" if error.hint else error.message, ok=False
            )

    def _run(self, context: _Context, params: types.CallToolRequestParams, bearer: Bearer) -> ToolRun:
        """Begin a call, or go on with the one that its client brings an answer for."""
        if params.request_state is not None:
            run = self.runs.resume(params.request_state, bearer.claims.jti)
            given = (params.input_responses or {}).get(run.question)
            self.runs.answer(run, run.question, approve=_is_yes(given))
            return run
        if params.name == "python_exec" and "call" not in bearer.claims.scopes:
            raise Forbidden(
                "the token lacks the scope 'call'",
                hint="'strawberry tokens add NAME --scope chat,call' makes one that has it.",
            )
        capabilities = context.session.client_capabilities
        asks = capabilities is not None and capabilities.elicitation is not None
        session = context.request.headers.get("mcp-session-id", "") if context.request is not None else ""
        arguments = params.arguments or {}
        call = ToolCall(str(context.request_id), params.name, json.dumps(arguments), arguments)
        work = partial(self._work, bearer, call, place=f"{bearer.claims.jti} mcp {session}", asks=asks)
        return self.runs.start(bearer.user.id, bearer.claims.jti, work)

    async def _work(
        self, bearer: Bearer, call: ToolCall, context: TurnContext, *, place: str, asks: bool
    ) -> ToolOutcome:
        with self.parts.gate.recording(call.name, bearer):
            return await self.parts.agent.calls.run_tool(bearer, call, context, place=place, asks=asks)

    async def _followed(
        self, context: _Context, run: ToolRun
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Follow a call to its end, or to a question that the client must bring the answer to."""
        number, waits = 0, False
        try:
            while True:
                match await run.events.get():
                    case ToolOutcome(ok=ok, text=text):
                        return _result(text, ok=ok)
                    case SkillCalled() as called:
                        number += 1
                        await context.session.report_progress(
                            number, message=f"{called.path}: {called.state}"
                        )
                    case ConfirmationWanted() as wanted if (
                        context.protocol_version in MODERN_PROTOCOL_VERSIONS
                    ):
                        state, waits = self.runs.park(run, wanted.id), True
                        return types.InputRequiredResult(
                            input_requests={wanted.id: types.ElicitRequest(params=_form(wanted))},
                            request_state=state,
                        )
                    case ConfirmationWanted() as wanted:
                        answer = None
                        form = _form(wanted)
                        with suppress(TimeoutError, MCPError):
                            async with asyncio.timeout(wanted.expires_s):
                                answer = await context.session.elicit_form(
                                    form.message, form.requested_schema, context.request_id
                                )
                        self.runs.answer(run, wanted.id, approve=_is_yes(answer))
        finally:
            if not waits:
                run.cancel()

    async def _list_resources(self, _context: _Context, _: Any) -> types.ListResourcesResult:
        resources = [
            types.Resource(
                uri=uri, name=uri.partition("://")[2], description=text, mime_type="application/json"
            )
            for uri, (_, text) in _RESOURCES.items()
            if "{" not in uri
        ]
        return types.ListResourcesResult(resources=resources)

    async def _list_templates(self, _context: _Context, _: Any) -> types.ListResourceTemplatesResult:
        templates = [
            types.ResourceTemplate(uri_template=uri, name=uri.partition("://")[2], description=text)
            for uri, (_, text) in _RESOURCES.items()
            if "{" in uri
        ]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def _read_resource(
        self, context: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read what an operation answers, with the rights of the token of this request."""
        operation, given = _meant(params.uri)
        admit = partial(self.parts.gate.check, _bearer(context))
        try:
            if operation.body is not None:
                given = operation.arguments(validated(operation.body, given))
            made = await self.parts.operations.call(operation, admit, **given)
        except StrawberryError as error:
            raise MCPError(types.INVALID_PARAMS, f"{error.message} {error.hint}".strip()) from None
        content = await _read(made)
        if len(content) > limits.MAX_RESOURCE_BYTES:
            raise MCPError(types.INVALID_PARAMS, "this resource has more than 1 MB: get it over HTTP")
        kind = made.media_type if isinstance(made, StreamingResponse) else "application/json"
        found: types.TextResourceContents | types.BlobResourceContents
        try:
            found = types.TextResourceContents(uri=params.uri, mime_type=kind, text=content.decode())
        except UnicodeDecodeError:
            blob = base64.b64encode(content).decode()
            found = types.BlobResourceContents(uri=params.uri, mime_type=kind, blob=blob)
        return types.ReadResourceResult(contents=[found], ttl_ms=0, cache_scope="private")

    async def _list_prompts(self, _context: _Context, _: Any) -> types.ListPromptsResult:
        arguments = [types.PromptArgument(name="message", description="What is asked", required=False)]
        prompts = [
            types.Prompt(
                name=agent.name,
                description=agent.profile.description if agent.profile else "The assistant of the home",
                arguments=arguments,
            )
            for agent in (ASSISTANT, *self.parts.agent.assistant.agents.all())
        ]
        return types.ListPromptsResult(prompts=prompts, ttl_ms=0, cache_scope="private")

    async def _get_prompt(
        self, context: _Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        bearer = _bearer(context)
        try:
            agent = self.parts.agent.assistant.agents.find(params.name)
        except StrawberryError as error:
            raise MCPError(types.INVALID_PARAMS, f"{error.message} {error.hint}".strip()) from None
        text = joined(self.parts.agent.assistant.prompter.system(agent, bearer.user))
        texts = [text, (params.arguments or {}).get("message", "")]
        return types.GetPromptResult(
            messages=[
                types.PromptMessage(role="user", content=types.TextContent(text=each))
                for each in texts
                if each
            ]
        )


def _bearer(context: _Context) -> Bearer:
    assert context.request is not None
    bearer: Bearer = context.request.scope[BEARER]
    return bearer


def _result(text: str, *, ok: bool) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=not ok)


def _is_yes(answer: Any) -> bool:
    return isinstance(answer, types.ElicitResult) and answer.action == "accept"


def _form(wanted: ConfirmationWanted) -> types.ElicitRequestFormParams:
    """Ask for a yes: a form without fields, which a person accepts or declines."""
    given = ", ".join(f"{name}={value!r}" for name, value in wanted.arguments.items())
    return types.ElicitRequestFormParams(
        # Device and method come last, where no argument can push them away.
        message=f"{wanted.method}({given}{', …' if wanted.cut else ''})\n"
        f"Confirm {wanted.method} on {wanted.device_name}.",
        requested_schema={"type": "object", "properties": {}},
    )


def _meant(uri: str) -> tuple[Operation[Any, Any], dict[str, str]]:
    """Return the operation that answers a resource, and its arguments."""
    for template, (operation, _) in _RESOURCES.items():
        found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", template), uri)
        if found is not None:
            given = {name: unquote(part) for name, part in found.groupdict().items()}
            if not any("/" in part for part in given.values()):
                return operation, given
    raise MCPError(types.INVALID_PARAMS, f"there is no resource {uri[:200]!r}")


async def _read(made: object) -> bytes:
    """Return an answer as HTTP has it; of a large file a little more than may be read."""
    if not isinstance(made, StreamingResponse):
        return to_json(made)
    content = b""
    async for piece in cast("AsyncIterator[bytes]", made.body_iterator):
        content += piece
        if len(content) > limits.MAX_RESOURCE_BYTES:
            break
    return content
