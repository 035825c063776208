"""The hub as an MCP server: three tools, what there is in the home as resources, agents as prompts."""

import asyncio
import base64
import json
from contextlib import suppress
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

import httpx
import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.types import ASGIApp, Receive, Scope, Send

from agent_core.gateway.protocol import ToolCall
from agent_core.prompt import joined
from agent_core.tools.skill_calls import Consent
from agent_core.tools.toolset import TOOL_SPECS, SkillToolset, ToolOutcome
from agent_core.turn import TurnContext
from chat.questions import TurnConfirmer
from contracts.chat import ConfirmationWanted, SkillCalled
from contracts.devices.rpc import Actor
from contracts.errors import Forbidden, ProblemDetails, StrawberryError
from hub_agent.agents.agent import ASSISTANT
from hub_agent.calls.audit import Origin
from hub_agent.calls.device_manager import ActingCaller
from hub_agent.chat.assistant import Assistant
from hub_registry.access.bearer import Bearer
from hub_server import limits
from hub_server.mcp.runs import BEARER, ToolRun, ToolRuns

_INSTRUCTIONS: Final = (
    "Strawberry is the assistant of a home. Find skills with search_skills, read how one is called with "
    "describe_function, and call them by their paths in python_exec."
)
_WHERE: Final = (
    "Use a token with the scope 'confirm' and an MCP client that supports elicitation, "
    "or ask in 'strawberry chat'."
)
_RESOURCES: Final = {
    "strawberry://devices": ("/api/devices", "The devices of the home"),
    "strawberry://skills": ("/api/skills", "What the devices can do"),
    "strawberry://states": ("/api/world", "The state of everything in the home that is known"),
    "strawberry://captures": ("/api/captures", "Recordings of topics"),
}
_TEMPLATES: Final = {
    "strawberry://devices/{name}": "One device",
    "strawberry://skills/{path}": "The documentation of a skill or method",
    "strawberry://states/{name}": "The state of what has this name",
    "strawberry://captures/{id}": "The files of a recording",
    "strawberry://captures/{id}/{file}": "One file of a recording, up to 1 MB",
}
_Context = ServerRequestContext[Any, Any]


class McpServer:
    """The server, and what its handlers work with.

    Args:
        app: The hub's application.
    """

    def __init__(self, assistant: Assistant, runs: ToolRuns, app: ASGIApp, *, version: str) -> None:
        self._assistant = assistant
        self._runs = runs
        self._app = app
        server: Server[Any] = Server(
            "strawberry",
            title="Strawberry",
            version=version,
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
        directory = self._assistant.registry.directory.seen_by(bearer.user.id)
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
            run = self._runs.resume(params.request_state, bearer.claims.jti)
            given = (params.input_responses or {}).get(run.question)
            self._runs.answer(run, run.question, approve=_is_yes(given))
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
        return self._runs.start(bearer.user.id, bearer.claims.jti, work)

    async def _work(
        self, bearer: Bearer, call: ToolCall, context: TurnContext, *, place: str, asks: bool
    ) -> ToolOutcome:
        assistant, claims, user = self._assistant, bearer.claims, bearer.user
        person = assistant.may_confirm(bearer)
        confirms = asks and person
        actor = Actor(user=user.id, turn=context.turn, read_only=user.read_only)
        caller = ActingCaller(assistant.manager, actor, partial(Origin.of, claims, confirmed=confirms))
        confirmer = TurnConfirmer(
            assistant.questions, user.id, context.turn, assistant.settings.turns.confirm_s
        )
        toolset = SkillToolset(
            assistant.catalogue(user, None),
            caller=caller,
            session=assistant.sandbox.session(user.id, place, owner=claims.holder),
            # What else the model of the client has read is not known here.
            consent=Consent(
                confirmer if confirms else None, untrusted=True, on_refused=caller.note_refused, where=_WHERE
            ),
            limits=assistant.settings.turns.tools,
        )
        if call.name != "python_exec":
            async with assistant.quotas.calls.turn(claims, person=person):
                return await toolset.run(call, context)
        with assistant.trail.refusals(claims, method="exec"):
            async with assistant.quotas.programs.turn(claims, person=person):
                return await toolset.run(call, context)

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
                        state, waits = self._runs.park(run, wanted.id), True
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
                        self._runs.answer(run, wanted.id, approve=_is_yes(answer))
        finally:
            if not waits:
                run.cancel()

    async def _list_resources(self, _context: _Context, _: Any) -> types.ListResourcesResult:
        resources = [
            types.Resource(
                uri=uri, name=uri.partition("://")[2], description=text, mime_type="application/json"
            )
            for uri, (_, text) in _RESOURCES.items()
        ]
        return types.ListResourcesResult(resources=resources)

    async def _list_templates(self, _context: _Context, _: Any) -> types.ListResourceTemplatesResult:
        templates = [
            types.ResourceTemplate(uri_template=uri, name=uri.partition("://")[2], description=text)
            for uri, text in _TEMPLATES.items()
        ]
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def _read_resource(
        self, context: _Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        """Read what the HTTP API has, with the token of this request: rights and content are the same."""
        path = _path_of(params.uri)
        if path is None:
            raise MCPError(types.INVALID_PARAMS, f"there is no resource {params.uri[:200]!r}")
        assert context.request is not None
        given = ("authorization", "cookie", "origin", "host")
        headers = {name: value for name in given if (value := context.request.headers.get(name))}
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=False)
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
            client.stream("GET", path, headers=headers) as response,
        ):
            content = b""
            async for chunk in response.aiter_bytes():
                content += chunk
                if len(content) > limits.MAX_RESOURCE_BYTES:
                    raise MCPError(types.INVALID_PARAMS, "this resource has more than 1 MB: get it over HTTP")
        kind = response.headers.get("content-type", "").partition(";")[0]
        if response.status_code >= 400:
            raise MCPError(types.INVALID_PARAMS, _problem(content))
        try:
            text = types.TextResourceContents(uri=params.uri, mime_type=kind, text=content.decode())
        except UnicodeDecodeError:
            blob = base64.b64encode(content).decode()
            found = types.BlobResourceContents(uri=params.uri, mime_type=kind, blob=blob)
            return types.ReadResourceResult(contents=[found], ttl_ms=0, cache_scope="private")
        return types.ReadResourceResult(contents=[text], ttl_ms=0, cache_scope="private")

    async def _list_prompts(self, _context: _Context, _: Any) -> types.ListPromptsResult:
        arguments = [types.PromptArgument(name="message", description="What is asked", required=False)]
        prompts = [
            types.Prompt(
                name=agent.name,
                description=agent.profile.description if agent.profile else "The assistant of the home",
                arguments=arguments,
            )
            for agent in (ASSISTANT, *self._assistant.agents.all())
        ]
        return types.ListPromptsResult(prompts=prompts, ttl_ms=0, cache_scope="private")

    async def _get_prompt(
        self, context: _Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        bearer = _bearer(context)
        try:
            agent = self._assistant.agents.find(params.name)
        except StrawberryError as error:
            raise MCPError(types.INVALID_PARAMS, f"{error.message} {error.hint}".strip()) from None
        text = joined(self._assistant.prompter.system(agent, bearer.user))
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


def _path_of(uri: str) -> str | None:
    """Return where the HTTP API has a resource; None where there is no such one."""
    if uri in _RESOURCES:
        return _RESOURCES[uri][0]
    match [quote(unquote(part), safe="") for part in uri.removeprefix("strawberry://").split("/")]:
        case ["devices", name] if name:
            return f"/api/devices/{name}"
        case ["skills", path] if path:
            return f"/api/skills/describe?path={path}"
        case ["states", name] if name:
            return f"/api/world?name={name}"
        case ["captures", id_] if id_:
            return f"/api/captures/{id_}/files"
        case ["captures", id_, name] if id_ and name:
            return f"/api/captures/{id_}/files/{name}"
    return None


def _problem(content: bytes) -> str:
    with suppress(ValueError):
        if (problem := ProblemDetails.read(json.loads(content))) is not None:
            return f"{problem.message} {problem.hint}".strip()
    return "this resource cannot be read"
