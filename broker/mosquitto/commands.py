"""Commands and answers of Mosquitto's dynamic security: its JSON as types.

Names are the plugin's own, see mosquitto_ctrl_dynsec(1) and the plugin's documentation at mosquitto.org.
"""

from collections.abc import Iterable
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_serializer, field_validator

AclType = Literal[
    "publishClientSend",
    "publishClientReceive",
    "subscribeLiteral",
    "subscribePattern",
    "unsubscribeLiteral",
    "unsubscribePattern",
]
DefaultType = Literal["publishClientSend", "publishClientReceive", "subscribe", "unsubscribe"]


class _Json(BaseModel):
    # Newer versions tell more than is read here.
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Acl(_Json):
    """One permission or prohibition of a role.

    Attributes:
        priority: Of those that match, the highest of the role decides.
    """

    acltype: AclType
    topic: str
    allow: bool = True
    priority: int = 0


class RoleUse(_Json):
    """A role that a client has; the roles with the highest priority are asked first."""

    rolename: str
    priority: int = -1


class GroupUse(_Json):
    """A group that a client is in."""

    groupname: str


class Role(_Json):
    """A set of permissions."""

    rolename: str
    acls: frozenset[Acl] = frozenset()

    @field_validator("acls", mode="before")
    @classmethod
    def _known(cls, acls: Iterable[Any]) -> list[Any]:
        known = get_args(AclType)
        return [each for each in acls if isinstance(each, Acl) or each.get("acltype") in known]


class Client(_Json):
    """One that may log in. The plugin never tells its password."""

    username: str
    clientid: str | None = None
    textname: str = ""
    textdescription: str = ""
    disabled: bool = False
    roles: frozenset[RoleUse] = frozenset()
    groups: tuple[GroupUse, ...] = ()

    def has(self, rolename: str) -> bool:
        return any(each.rolename == rolename for each in self.roles)


class Group(_Json):
    """Clients that share roles."""

    groupname: str
    roles: frozenset[RoleUse] = frozenset()


class DefaultAccess(_Json):
    """What a client may do where none of its roles says anything."""

    acltype: DefaultType
    allow: bool


class Command(_Json):
    """Something for the plugin to do."""

    command: str


class SetRole(Command):
    """Make a role, or give it other permissions instead of those it has."""

    command: Literal["createRole", "modifyRole"] = "createRole"
    rolename: str
    acls: frozenset[Acl]


class DeleteRole(Command):
    """Remove a role that no client has any more."""

    command: Literal["deleteRole"] = "deleteRole"
    rolename: str


class CreateClient(Command):
    """Add a client that may log in.

    Attributes:
        clientid: The only client id that it may use; None for any.
    """

    command: Literal["createClient"] = "createClient"
    username: str
    password: SecretStr
    clientid: str | None = None
    textname: str = ""
    textdescription: str = ""
    roles: frozenset[RoleUse] = frozenset()

    @field_serializer("password")
    def _plain(self, password: SecretStr) -> str:
        return password.get_secret_value()

    @property
    def client(self) -> Client:
        """Return the client as the plugin reports it afterwards."""
        return Client(
            username=self.username,
            clientid=self.clientid,
            textname=self.textname,
            textdescription=self.textdescription,
            roles=self.roles,
        )


class ChangeClient(Command):
    """Remove a client, refuse its login, or allow that again; but for the last it is disconnected."""

    command: Literal["deleteClient", "disableClient", "enableClient"]
    username: str


class Ask(Command):
    """Any question."""

    command: Literal[
        "getClient",
        "getRole",
        "getDefaultACLAccess",
        "getAnonymousGroup",
        "listClients",
        "listRoles",
        "listGroups",
    ]
    username: str | None = None
    rolename: str | None = None
    verbose: bool | None = None
    count: int | None = None
    offset: int | None = None


class CommandResult(_Json):
    """What came of one command.

    Attributes:
        error: In the plugin's words; None where it was done.
    """

    command: str = ""
    correlation: str = Field(default="", alias="correlationData")
    error: str | None = None
    data: dict[str, Any] = {}

    @property
    def is_missing(self) -> bool:
        return self.error is not None and self.error.endswith("not found")

    @classmethod
    def list_in(cls, payload: bytes) -> "list[CommandResult]":
        """Read all answers of one message.

        Raises:
            pydantic.ValidationError: If it is none.
        """
        return list(_Answers.model_validate_json(payload).responses)


class _Answers(BaseModel):
    responses: list[CommandResult]
