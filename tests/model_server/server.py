"""The server of a scripted model, over real HTTP on loopback."""

import json
import time
from typing import Any

from tests.model_server.bodies import chunk, deltas, finish_reason, head, usage, whole
from tests.model_server.loopback import LoopbackHandler, LoopbackServer
from tests.model_server.rules import refusal
from tests.model_server.script import Breaks, Fails, Garbles, Hangs, Reply, Says, Script, SeenRequest


class ScriptedModel(LoopbackServer[SeenRequest]):
    """The server; see ``LoopbackServer`` for the script and for what it keeps."""

    def __init__(
        self, script: Script = (), *, api_key: str = "", name: str = "scripted", port: int = 0
    ) -> None:
        super().__init__(script, _Handler, port=port)
        self.name = name
        self.api_key = api_key

    def record(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> SeenRequest:
        """Number a request and keep it."""
        return self._keep(SeenRequest, path=path, headers=headers, body=body)


class _Handler(LoopbackHandler):
    @property
    def model(self) -> ScriptedModel:
        owner = self.server.owner
        assert isinstance(owner, ScriptedModel)
        return owner

    def get(self) -> None:
        """List the one model."""
        self.send_json(200, {"object": "list", "data": [{"id": self.model.name, "object": "model"}]})

    def post(self) -> None:
        """Answer a chat completion as the script says."""
        raw, headers = self.read_body(), self.lower_headers()
        if self.model.api_key and headers.get("authorization") != f"Bearer {self.model.api_key}":
            self._fail(401, "Incorrect API key provided")
            return
        reason = refusal(self.path, raw)
        if reason:
            self.model.refused.append(reason)
            self._fail(400, reason)
            return
        seen = self.model.record(self.path, headers, json.loads(raw))
        try:
            self._send(seen, self.model.reply_to(seen))
        except ConnectionError:
            seen.abandoned.set()
            self.close_connection = True

    def _send(self, seen: SeenRequest, reply: Reply) -> None:
        streams = bool(seen.body.get("stream"))
        match reply:
            case Fails(status=status, message=message):
                self._fail(status, message)
            case Hangs(text=text):
                if text and streams:
                    self._begin_stream(seen, Says(text=text))
                self.wait_for_client(seen)
            case Garbles(body=body):
                self.send_whole(200, body.encode(), "text/event-stream" if streams else "application/json")
            case Breaks():
                self._break_off(seen, reply, streams=streams)
            case Says():
                time.sleep(reply.delay_s)
                if streams:
                    self._stream(seen, reply)
                else:
                    self.send_json(200, whole(seen, reply))

    def _break_off(self, seen: SeenRequest, reply: Breaks, *, streams: bool) -> None:
        if streams:
            self._begin_stream(seen, Says(text=reply.text, calls=reply.calls))
        self.close_connection = True

    def _begin_stream(self, seen: SeenRequest, reply: Says) -> None:
        self.start_stream("text/event-stream")
        for delta in deltas(seen, reply):
            self._event(chunk(seen, delta))

    def _stream(self, seen: SeenRequest, reply: Says) -> None:
        self.start_stream("text/event-stream")
        for delta in deltas(seen, reply):
            self._event(chunk(seen, delta))
            time.sleep(reply.gap_s)
        self._event(chunk(seen, {}, finish=finish_reason(reply)))
        if (seen.body.get("stream_options") or {}).get("include_usage"):
            self._event({**head(seen, "chat.completion.chunk"), "choices": [], "usage": usage(reply)})
        self.write_piece(b"data: [DONE]\n\n")
        self.write_piece(b"")

    def _event(self, data: dict[str, Any]) -> None:
        self.write_piece(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _fail(self, status: int, message: str) -> None:
        self.send_json(status, {"error": {"message": message, "type": "scripted", "code": status}})
