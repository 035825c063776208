"""A broker's logins for tests: it keeps what it was told, and refuses or is away when asked to."""

from broker.logins import BusLogin
from contracts.access import Principal
from contracts.devices.presence import Revocation
from contracts.errors import Disconnected, LinkError, StrawberryError
from identity import tokens

AWAY = Disconnected("the broker is away")
NO = LinkError("the broker says no")


class FakeDoor:
    """Who may log in with which password, as a broker that compares passwords keeps it."""

    answer_s = 0.0

    def __init__(self) -> None:
        self.passwords: dict[tuple[str, str], str] = {}
        self.kicked: list[str] = []
        self.settled = 0
        self.trouble: StrawberryError | None = None

    def password(self, name: str, kind: str = "device") -> str | None:
        return self.passwords.get((kind, name))

    def has(self, device: str, token: str) -> bool:
        """Whether the password of a device goes with this token for HTTP."""
        password = self.password(device)
        return password is not None and tokens.token_id(password) == tokens.token_id(token)

    async def allow(self, login: BusLogin) -> None:
        self._raise()
        place = (login.principal.kind, login.principal.id)
        if place in self.passwords:
            self.kicked.append(login.principal.id)
        self.passwords[place] = login.token.get_secret_value()

    async def revoke(self, principal: Principal, revocation: Revocation) -> None:
        self._raise()
        assert revocation.tokens
        if self.passwords.pop((principal.kind, principal.id), None):
            self.kicked.append(principal.id)

    async def sync(self, logins, revocation: Revocation) -> None:
        self._raise()
        self.passwords = {
            (each.principal.kind, each.principal.id): each.token.get_secret_value() for each in logins
        }
        self.settled += 1

    def _raise(self) -> None:
        if self.trouble is not None:
            raise self.trouble
