import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from agent_core.gateway.protocol import (
    AssistantMessage,
    Gateway,
    Message,
    ToolCall,
    ToolSpec,
    UserMessage,
)
from agent_core.loop import TurnRequest, run_turn
from agent_core.models.entries import GatewayKind
from agent_core.provenance import Prompt
from agent_core.tools.toolset import ToolOutcome, failed
from agent_core.turn import TurnContext, TurnLimits
from contracts.chat.messages import (
    Notice,
    TextDelta,
    ToolCalled,
    ToolReturned,
    TurnError,
    TurnEvent,
    TurnFinal,
)
from tests.model_server import Breaks, Fails, Says, ScriptedCall, ScriptedModel, SeenRequest, calls

Serve = Callable[..., ScriptedModel]
OpenGateway = Callable[..., AbstractAsyncContextManager[Gateway]]
Run = Callable[[str], AbstractAsyncContextManager[Gateway]]


@pytest.fixture
def kind() -> GatewayKind:
    """The loop knows the protocol of gateways alone; `test_gateway.py` tries each kind."""
    return "direct"


class Adder:
    """A toolset of one tool; remembers what it was asked and can be made to wait."""

    def __init__(self) -> None:
        self.seen: list[ToolCall] = []
        self.waits = asyncio.Event()
        self.waiting = asyncio.Event()
        self.cancelled = False
        self.pauses_s = 0.0
        self.waits.set()

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        numbers = {"a": {"type": "integer"}, "b": {"type": "integer"}}
        return (ToolSpec("add", Prompt("Add."), {"type": "object", "properties": numbers}),)

    async def run(self, call: ToolCall, context: TurnContext) -> ToolOutcome:
        self.seen.append(call)
        if call.name != "add":
            return failed("there is no such tool", "The tools are add.")
        if call.arguments is None:
            return failed("the arguments are no JSON object")
        try:
            self.waiting.set()
            await self.waits.wait()
            with context.paused():
                await asyncio.sleep(self.pauses_s)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return ToolOutcome(ok=True, text=Prompt(str(call.arguments["a"] + call.arguments["b"])))


async def events_of(
    gateway: Gateway, tools: Adder | None, message: str = "Add.", **options: object
) -> list[TurnEvent]:
    events: list[TurnEvent] = []
    fields = {key: options.pop(key) for key in ("history", "context", "device", "mode") if key in options}
    request = TurnRequest(turn="t1", message=message, system="Be brief.", **fields)  # type: ignore[arg-type]
    await run_turn(request, gateway=gateway, toolset=tools, emit=events.append, **options)  # type: ignore[arg-type]
    return events


def kinds(events: list[TurnEvent]) -> list[str]:
    merged: list[str] = []
    for event in events:
        if event.kind != "text" or merged[-1:] != ["text"]:
            merged.append(event.kind)
    return merged


async def test_texts_and_tool_calls_come_in_the_order_in_which_they_happen(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    server = serve(
        [
            Says(text="First I add.", calls=(ScriptedCall(name="add", arguments={"a": 1, "b": 2}),)),
            Says(text="Now once more.", calls=(ScriptedCall(name="add", arguments={"a": 3, "b": 4}),)),
            Says(text="Three and seven."),
        ]
    )
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, Adder(), device="kitchen_pc")
    assert kinds(events) == [
        "text", "tool_call", "tool_result", "text", "tool_call", "tool_result", "text", "final",
    ]  # fmt: skip
    final = events[-1]
    assert isinstance(final, TurnFinal)
    assert final.answer == "First I add.\n\nNow once more.\n\nThree and seven."
    assert final.answer == "".join(event.text for event in events if isinstance(event, TextDelta))
    assert (final.model, final.device, final.mode) == (server.name, "kitchen_pc", "online")
    assert (final.input_tokens, final.output_tokens) == (33, 21)
    assert server.requests[2].results == ["3", "7"]
    assert server.refused == []


async def test_parallel_calls_of_one_answer_run_in_order(serve: Serve, gateway_to: OpenGateway) -> None:
    both = tuple(ScriptedCall(name="add", arguments={"a": n, "b": n}, id="same") for n in (1, 2))
    server = serve([Says(calls=(both[0], both[1].model_copy(update={"id": "other"}))), Says(text="Done.")])
    tools = Adder()
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, tools)
    assert [call.arguments for call in tools.seen] == [{"a": 1, "b": 1}, {"a": 2, "b": 2}]
    assert kinds(events)[:4] == ["tool_call", "tool_result", "tool_call", "tool_result"]
    assert server.requests[1].results == ["2", "4"]


@pytest.mark.parametrize("malformed", ["{oops", '{"a":' * 5_000])
async def test_malformed_arguments_and_unknown_tools_go_back_as_errors(
    serve: Serve, gateway_to: OpenGateway, malformed: str
) -> None:
    def script(seen: SeenRequest) -> Says:
        if seen.number == 0:
            wrong = ScriptedCall(name="add", arguments=malformed), ScriptedCall(name="rm -rf /")
            return Says(calls=wrong)
        return Says(text=" / ".join(seen.results))

    server = serve(script)
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, Adder())
    assert isinstance(events[-1], TurnFinal)
    assert "no JSON object" in events[-1].answer
    assert "The tools are add." in events[-1].answer
    assert [event.arguments for event in events if isinstance(event, ToolCalled)] == [malformed, {}]
    assert server.refused == []


PRINTED = [
    '```json\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n```',
    'I will add.\n<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>',
    "```python\nadd(2, b=3)\n```",
    "```tool_code\nprint(add(a=2, b=3))\n```",
    '{"name": "add", "parameters": {"a": 2, "b": 3}}',
    '[TOOL_CALLS] [{"name": "add", "arguments": {"a": 2, "b": 3}}]',
    "add(2, 3)",
    '{"type": "function", "function": {"name": "add", "arguments": "{\\"a\\": 2, \\"b\\": 3}"}}',
]


@pytest.mark.parametrize("printed", PRINTED)
async def test_a_call_that_is_printed_runs_once_and_is_not_shown(
    serve: Serve, gateway_to: OpenGateway, printed: str
) -> None:
    server = serve([Says(text=printed), Says(text="It is five.")])
    tools = Adder()
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, tools)
    assert [call.arguments for call in tools.seen] == [{"a": 2, "b": 3}]
    assert server.requests[1].results == ["5"]
    assert isinstance(events[-1], TurnFinal)
    assert events[-1].answer in ("It is five.", "I will add.\n\nIt is five.")


@pytest.mark.parametrize(
    "text",
    [
        'Write ```json\n{"name": "pip", "arguments": {}}\n``` into it.',
        "Use it so:\n```python\nfor x in y: add(x, x)\n```\nand see.",
        "```rust\nadd(1, 2)\n```",
        '{"temperature": 21}',
        "add(os.system('x'), 2)",
        "A ` and `` and [brackets] and {braces} <tags>.",
        "It ends with ```",
        "[one](http://x) and more",
        "a",
    ],
)
async def test_text_that_is_no_call_is_shown_whole(serve: Serve, gateway_to: OpenGateway, text: str) -> None:
    server, tools = serve([Says(text=text)]), Adder()
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, tools)
    assert isinstance(events[-1], TurnFinal)
    assert events[-1].answer == text
    assert tools.seen == []


async def test_prose_is_shown_while_it_comes(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([Says(text="This is prose in several pieces, without any call.")])
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, Adder())
    assert len([event for event in events if isinstance(event, TextDelta)]) > 3


async def test_at_its_last_step_a_turn_ends_with_a_summary_and_says_so(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    def script(seen: SeenRequest) -> Says:
        return calls("add", a=seen.number, b=1) if seen.tools else Says(text="I added three times.")

    server = serve(script)
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, Adder(), limits=TurnLimits(iterations=3))
    assert isinstance(events[-1], TurnFinal)
    assert events[-1].answer == "I added three times."
    assert [event.text for event in events if isinstance(event, Notice)] == [
        "The turn was stopped after 3 steps. Ask again to continue from here."
    ]
    assert len(server.requests) == 4
    last = server.requests[-1]
    assert "the turn was stopped after 3 steps" in last.said("user")[-1]
    assert "[Result of add]\n3" in "".join(last.said("user"))
    assert last.results == []
    assert server.refused == []


@pytest.mark.parametrize(
    "last",
    [
        calls("add", a=1, b=1),
        Says(text='```json\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n```'),
        Fails(status=400, message="no"),
    ],
)
async def test_a_model_without_a_last_word_leaves_the_turn_stopped(
    serve: Serve, gateway_to: OpenGateway, last: Says | Fails
) -> None:
    server, tools = serve([calls("add", a=1, b=1), last]), Adder()
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, tools, limits=TurnLimits(iterations=1))
    assert kinds(events) == ["tool_call", "tool_result", "error"]
    assert isinstance(events[-1], TurnError)
    assert events[-1].code == "limit"
    assert events[-1].message.startswith("the turn was stopped after 1 step")
    assert len(tools.seen) == 1


async def test_a_turn_stops_at_its_tokens(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve(lambda seen: calls("add", a=seen.number, b=1).model_copy(update={"input_tokens": 600}))
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, Adder(), limits=TurnLimits(tokens=1_000))
    assert isinstance(events[-1], TurnError)
    assert events[-1].code == "limit"
    assert len(server.requests) == 2


async def test_a_turn_stops_at_its_time_and_takes_the_tool_with_it(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    for seconds in (0.5, 5.0, 15.0):
        server, tools = serve([calls("add", a=1, b=1)]), Adder()
        tools.waits.clear()
        async with gateway_to(server) as gateway:
            events = await events_of(gateway, tools, limits=TurnLimits(seconds=seconds))
        assert isinstance(events[-1], TurnError)
        assert events[-1].code == "limit"
        # On a machine that stands still the model has not even answered by then.
        if tools.waiting.is_set():
            break
    assert tools.cancelled


async def test_the_time_in_which_a_person_is_asked_does_not_count(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    for seconds in (0.5, 5.0, 15.0):
        server, tools = serve([calls("add", a=1, b=1), Says(text="Two.")]), Adder()
        tools.pauses_s = seconds + 0.2
        async with gateway_to(server) as gateway:
            events = await events_of(gateway, tools, limits=TurnLimits(seconds=seconds))
        # On a machine that stands still the rest may take longer than so little, too.
        if isinstance(events[-1], TurnFinal):
            break
    assert isinstance(events[-1], TurnFinal)


async def test_the_same_failing_call_is_not_run_for_ever(serve: Serve, gateway_to: OpenGateway) -> None:
    def script(seen: SeenRequest) -> Says:
        return calls("subtract", a=1) if seen.tools else Says(text="I cannot subtract.")

    server, tools = serve(script), Adder()
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, tools)
    assert len(tools.seen) == 3
    assert kinds(events)[-3:] == ["text", "notice", "final"]
    assert kinds(events).count("tool_call") == kinds(events).count("tool_result")
    assert isinstance(events[-1], TurnFinal)
    assert events[-1].answer == "I cannot subtract."


async def test_cancelling_the_reader_reaches_the_tool(serve: Serve, gateway_to: OpenGateway) -> None:
    server, tools = serve([calls("add", a=1, b=1)]), Adder()
    tools.waits.clear()
    async with gateway_to(server) as gateway, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(events_of(gateway, tools))
        await tools.waiting.wait()
        running.cancel()
    assert running.cancelled()
    assert tools.cancelled


async def test_a_model_that_fails_ends_the_turn_with_what_it_said(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    server = serve([Fails(status=400, message="context too long")])
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, Adder())
    assert len(events) == 1
    assert isinstance(events[0], TurnError)
    assert events[0].code == "model_failed"
    assert "context too long" in events[0].message


async def test_a_broken_answer_is_kept_and_said_honestly(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([Breaks(text="It is half past")])
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, Adder())
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "It is half past"
    assert isinstance(events[-1], TurnError)
    assert "broke off" in events[-1].message


async def test_a_fallback_is_told_once(serve: Serve, gateway_to: OpenGateway) -> None:
    down = serve(lambda _: Fails(status=401), name="down")
    server = serve([calls("add", a=1, b=1), Says(text="Two.")], name="up")
    async with gateway_to(down, server) as gateway:
        events = await events_of(gateway, Adder())
    notices = [event.text for event in events if isinstance(event, Notice)]
    assert len(notices) == 1
    assert notices[0].endswith("up answers instead.")
    assert isinstance(events[-1], TurnFinal)
    assert events[-1].model == "up"


async def test_without_tools_none_are_sent_and_none_run(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([calls("add", a=1, b=1), Says(text="I cannot add.")])
    async with gateway_to(server) as gateway:
        events = await events_of(gateway, None)
    assert "tools" not in server.requests[0].body
    returned = [event for event in events if isinstance(event, ToolReturned)]
    assert [event.ok for event in returned] == [False]
    assert isinstance(events[-1], TurnFinal)


async def test_history_stands_before_and_changing_things_stand_last_in_the_users_role(
    serve: Serve, gateway_to: OpenGateway
) -> None:
    server = serve([Says(text="ok")])
    history: tuple[Message, ...] = (UserMessage(Prompt("Earlier.")), AssistantMessage(Prompt("Yes.")))
    async with gateway_to(server) as gateway:
        await events_of(gateway, Adder(), "Now?", history=history, context=Prompt("<context>noon</context>"))
    assert server.requests[0].said("system") == ["Be brief."]
    assert server.requests[0].said("user") == ["Earlier.", "<context>noon</context>\n\nNow?"]


async def test_a_long_conversation_loses_its_oldest_exchanges(serve: Serve, gateway_to: OpenGateway) -> None:
    server = serve([Says(text="ok")])
    history = tuple(
        message
        for number in range(30)
        for message in (
            UserMessage(Prompt(f"question {number} {'x' * 400}")),
            AssistantMessage(Prompt(f"answer {number}")),
        )
    )
    async with gateway_to(server) as gateway:
        events = await events_of(
            gateway, Adder(), "Now?", history=history, limits=TurnLimits(context_tokens=1_000)
        )
    users = server.requests[0].said("user")
    assert users[-1] == "Now?"
    assert users[-2].startswith("question 29")
    assert 5 < len(users) < 15
    assert server.requests[0].messages[1]["role"] == "user"
    assert any(isinstance(event, Notice) for event in events)
