"""The hub on a NATS cluster of its home: it answers who may log in, and ends connections on every node."""

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from nats.aio.client import Client
from nats.errors import Error as NatsError

from broker import limits
from broker.logins import BusLogin, LoginCheck
from broker.nats.callout import SUBJECT, Callout, login_name
from broker.nats.keys import ACCOUNT, NatsKeys
from broker.nats.streams import keep_bounded
from contracts.access import Principal
from contracts.addresses import host_of
from contracts.answers.system import ClusterMember
from contracts.claims import Claims, PrincipalKind
from contracts.devices.presence import Revocation
from contracts.errors import Disconnected
from contracts.rates import Backoff, TokenBuckets
from identity import tokens
from identity.certificates import client_context
from identity.keys import KeyPair

__all__ = ["NatsAccess", "NatsLogins", "open_nats"]

_log = logging.getLogger(__name__)

_PING: Final = "$SYS.REQ.SERVER.PING"
_ONE_TOKEN: Final = ("device", "client")


@dataclass(frozen=True)
class NatsAccess:
    """Where the nodes are, and as whom a hub logs in.

    Attributes:
        urls: Of the nodes, ``nats://host:4222``, or ``tls://host:4222``.
        ca: PEM that vouches for them; None for the system's authorities.
        key: The hub's.
        present: Returns the id of the token with which a principal may log in; None where it has none.
        is_revoked: Returns whether the token with this id was revoked.
        read_good: Returns whether it is good by the database, None where that has none: another replica may
            have made or revoked it a moment ago. None without replicas.
    """

    urls: tuple[str, ...]
    hub_id: str
    key: KeyPair
    present: Callable[[PrincipalKind, str], str | None]
    is_revoked: Callable[[str], bool] = lambda _: False
    read_good: Callable[[str], Awaitable[bool | None]] | None = None
    ca: str | None = None


def _is_listed(claims: Claims) -> bool:
    # The hub makes itself a token at each login. The probe's are in no list, and end soon.
    return claims.kind != "hub" and claims.exp - claims.iat > limits.CHECK_LIFETIME_S


class NatsLogins:
    """Decides who may log in on a NATS cluster; a `broker.logins.BrokerLogins`. Made by `open_nats`.

    Attributes:
        servers: The connection in the system account.
        fill: How full what the nodes store is; see `keep_bounded`.
    """

    answer_s: Final = limits.NATS_LOGIN_S

    def __init__(self, access: NatsAccess) -> None:
        self._access = access
        self._told: dict[tuple[PrincipalKind, str], str] = {}
        self.servers: Client | None = None
        self.fill: dict[str, float] = {}

    def is_revoked(self, claims: Claims) -> bool:
        """Return whether a token counts no longer, or its principal has another one."""
        if claims.kind == "hub":
            # It makes itself one at each login.
            return False
        who = claims.kind, claims.sub
        present = self._access.present(*who)
        if self._told.get(who) == present:
            self._told.pop(who, None)
        good = self._told.get(who, present)
        if good is None:
            return _is_listed(claims) or self._access.is_revoked(claims.jti)
        return claims.jti != good

    async def read_revoked(self, claims: Claims) -> bool:
        """Return the same as the database has it."""
        assert self._access.read_good is not None
        good = await self._access.read_good(claims.jti)
        return _is_listed(claims) if good is None else not good

    async def allow(self, login: BusLogin) -> None:
        """Allow a login with this token and no other; see `BrokerLogins.allow`.

        Raises:
            Disconnected: While no node can be reached.
        """
        principal, token = login.principal, tokens.token_id(login.token.get_secret_value())
        # The database may have it only when this has returned.
        self._told[principal.kind, principal.id] = token
        await self._end(principal, lambda name: name != login_name(principal, token))

    async def revoke(self, principal: Principal, revocation: Revocation) -> None:
        """Remove a login, and end its connections on all nodes; see `BrokerLogins.revoke`.

        Raises:
            Disconnected: While no node can be reached, or where one does not end a connection.
        """
        self._told.pop((principal.kind, principal.id), None)
        revoked = {login_name(principal, each) for each in revocation.tokens}
        await self._end(principal, lambda name: principal.kind in _ONE_TOKEN or name in revoked)

    async def sync(self, logins: Collection[BusLogin], revocation: Revocation) -> None:
        """End the connections of all others; see `BrokerLogins.sync`.

        Raises:
            Disconnected: While no node can be reached, or where one does not end a connection.
        """
        self._told.clear()
        good = {login_name(each.principal, tokens.token_id(each.token.get_secret_value())) for each in logins}
        ours = tuple(f"{kind}/" for kind in (*_ONE_TOKEN, "user"))
        await self._end_where(lambda name: name.startswith(ours) and name not in good)

    async def nodes(self) -> list[ClusterMember]:
        """List the nodes that the settings name, and whether the others know each."""
        said: dict[str, dict[str, Any]] = {}

        async def take(answer: dict[str, Any]) -> bool:
            said[answer["server"]["id"]] = answer["statsz"]
            return True

        with suppress(Disconnected):
            await self._ask("STATSZ", {}, take)
        return await asyncio.gather(*(self._node(url, said) for url in self._access.urls))

    async def _end(self, principal: Principal, is_over: Callable[[str], bool]) -> None:
        # A device has one connection, by its id; of others several programs may have one each.
        options = {"mqtt_client": principal.id} if principal.kind == "device" else {}
        begin = login_name(principal)
        await self._end_where(lambda name: name.startswith(begin) and is_over(name), options)

    async def _end_where(self, is_over: Callable[[str], bool], options: dict[str, Any] | None = None) -> None:
        """End connections on all nodes by their names, those of each node as soon as it has listed them."""
        asked = {"auth": True, "acc": ACCOUNT, "limit": limits.NATS_CONNECTIONS, **(options or {})}

        async def take(answer: dict[str, Any]) -> bool:
            found = answer["data"].get("connections") or ()
            over = [each["cid"] for each in found if is_over(each.get("authorized_user", ""))]
            server = answer["server"]["id"]
            return all([await self._request(server, "KICK", {"cid": each}) is not None for each in over])

        await self._ask("CONNZ", asked, take)

    async def _ask(
        self, what: str, asked: dict[str, Any], take: Callable[[dict[str, Any]], Awaitable[bool]]
    ) -> None:
        """Ask all nodes, and again what is lost with one of them, until each has answered.

        Which there are is read from their routes. Their `active_servers` has one that was killed for three
        minutes more, and is 1 at a node that has just begun.

        Args:
            take: Called with each answer as it comes; returns False where that node is to be asked again.

        Raises:
            Disconnected: If one that the others are connected to does not answer.
        """
        servers = self._connected()
        inbox, replies = servers.new_inbox(), asyncio.Queue[bytes]()

        async def put(message: Any) -> None:
            replies.put_nowait(message.data)

        loop, wait = asyncio.get_running_loop(), limits.NATS_ASK_AGAIN_S
        until, answered = loop.time() + limits.NATS_ANSWER_S, set[str]()
        try:
            listening = await servers.subscribe(inbox, cb=put)
            try:
                while True:
                    for each in {"STATSZ", what}:
                        await servers.publish(f"{_PING}.{each}", json.dumps(asked).encode(), reply=inbox)
                    again, routes = min(until, loop.time() + wait), dict[str, set[str]]()
                    wait *= 2
                    try:
                        while not routes or set(routes).union(*routes.values()) - (answered & routes.keys()):
                            async with asyncio.timeout_at(again):
                                answer = json.loads(await replies.get())
                            name, statsz = answer["server"]["name"], answer.get("statsz")
                            if statsz is not None:
                                routes[name] = {each["name"] for each in statsz.get("routes") or ()}
                            if (statsz is not None) == (what == "STATSZ") and await take(answer):
                                answered.add(name)
                        return
                    except TimeoutError:
                        if again == until:
                            raise Disconnected("not every NATS server has answered") from None
            finally:
                await listening.unsubscribe()
        except (NatsError, ValueError, LookupError) as error:
            raise Disconnected(f"NATS does not answer the hub: {error}") from None

    async def _request(self, server: str, what: str, asked: dict[str, Any]) -> bytes | None:
        subject, data = f"$SYS.REQ.SERVER.{server}.{what}", json.dumps(asked).encode()
        try:
            answer = await self._connected().request(subject, data, timeout=limits.NATS_ASK_AGAIN_S)
        except NatsError:
            return None  # it is lost, or the hub's connection was
        return answer.data

    async def _node(self, url: str, said: dict[str, dict[str, Any]]) -> ClusterMember:
        """Read how the node introduces itself, which it does before a login."""
        info: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            async with asyncio.timeout(limits.NATS_ANSWER_S):
                reader, writer = await asyncio.open_connection(host_of(url), urlsplit(url).port or 4222)
                info = json.loads((await reader.readline()).removeprefix(b"INFO "))
                writer.close()
        server = info.get("server_id", "")
        found, health = said.get(server, {}), None
        if found:
            with suppress(Disconnected):
                health = await self._request(server, "HEALTHZ", {})
        return ClusterMember(
            kind="node",
            name=info.get("server_name", ""),
            state="serves" if info else "gone",
            # The others know one that lost its files before it has what they have.
            bus=health is not None and json.loads(health).get("data", {}).get("status") == "ok",
            clients=found.get("connections"),
            bytes=found.get("jetstream", {}).get("stats", {}).get("storage"),
            url=url,
            version=info.get("version", ""),
        )

    def _connected(self) -> Client:
        # While it moves to another node, it keeps what it is to send.
        if self.servers is None or self.servers.is_closed:
            raise Disconnected("no NATS server can be reached", hint="Check the addresses, and that it runs.")
        return self.servers


@asynccontextmanager
async def open_nats(access: NatsAccess, *, wait_s: float) -> AsyncIterator[NatsLogins]:
    """Answer who may log in while the context is open; a cluster that is away is waited for.

    Args:
        wait_s: How long entering waits for the first node.
    """
    logins, keys = NatsLogins(access), NatsKeys(access.key)
    reads = access.read_good is not None
    check = LoginCheck(access.hub_id, access.key.public, (lambda _: False) if reads else logins.is_revoked)
    callout = Callout(keys.issuer, check, logins.read_revoked if reads else None)
    ready = asyncio.Event()
    backoff = Backoff(*limits.NATS_RETRY_S, jitter=0)

    async def serve() -> None:
        async with AsyncExitStack() as stack:
            logins.servers = await _connect(stack, access, keys.system.seed.decode())
            asked = await _connect(stack, access, keys.hub.seed.decode())
            # One of the replicas of this hub answers each.
            await asked.subscribe(SUBJECT, queue=access.hub_id, cb=callout.answer)
            await asked.flush()
            ready.set()
            backoff.reset()
            async with asyncio.TaskGroup() as tasks:
                bounding = tasks.create_task(keep_bounded(asked, logins.fill), name="NATS streams")
                await _lost(logins.servers, asked)
                bounding.cancel()
        raise Disconnected("no NATS server can be reached")

    async def keep_serving() -> None:
        while True:
            try:
                await serve()
            except Exception as error:  # noqa: BLE001  without it no one can log in
                if serving.cancelling():
                    # To close a connection that is lost fails, and that hides the cancellation.
                    return
                _log.warning(
                    "NATS: the hub connects again, because of %s: %.300s", type(error).__name__, error
                )
            await asyncio.sleep(backoff.next())

    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        serving = tasks.create_task(keep_serving(), name="NATS logins")
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await ready.wait()
        try:
            yield logins
        except Exception as error:  # noqa: BLE001  raised below as it is, not in a group
            failure = error
        finally:
            serving.cancel()
    if failure is not None:
        raise failure


async def _lost(*clients: Client) -> None:
    """Wait until one is away for so long that it may not connect again: some errors end it for good."""
    away_s = 0.0
    while away_s < limits.NATS_LOST_S:
        await asyncio.sleep(limits.NATS_RECONNECT_S)
        is_away = not all(each.is_connected for each in clients)
        away_s = away_s + limits.NATS_RECONNECT_S if is_away else 0


def error_log() -> Callable[[Exception], Awaitable[None]]:
    """Return what logs errors of a client, each text by itself: those of several nodes take turns."""
    telling = TokenBuckets(burst=1, per_second=1 / limits.NATS_TOLD_S)

    async def note(error: Exception) -> None:
        told = str(error) or type(error).__name__
        if telling.take(told):
            _log.warning("NATS: %.300s", told)

    return note


async def _connect(stack: AsyncExitStack, access: NatsAccess, seed: str) -> Client:
    """Connect, however long it takes; the client then keeps connected by itself."""
    secure = any(each.startswith("tls:") for each in access.urls)
    # The system's authorities are read from many files.
    tls: ssl.SSLContext | None = await asyncio.to_thread(client_context, access.ca) if secure else None
    client = Client()

    async def close() -> None:
        # It waits without end for a connection that it closes during the handshake of TLS.
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.NATS_ANSWER_S):
                await client.close()

    stack.push_async_callback(close)
    await client.connect(
        list(access.urls),
        nkeys_seed_str=seed,
        tls=tls,
        error_cb=error_log(),
        max_reconnect_attempts=-1,
        reconnect_time_wait=limits.NATS_RECONNECT_S,  # type: ignore[arg-type]
        connect_timeout=limits.NATS_ANSWER_S,  # type: ignore[arg-type]
    )
    return client
