"""The table of web push subscriptions."""

from datetime import datetime

from sqlmodel import Field

from hub_registry.storage.tables import Moment, Table


class PushRow(Table, table=True):
    """A browser that wants a person's notifications.

    Attributes:
        token: ``jti`` of the token or session that asked; with its revocation it ends.
        endpoint: Where its push service takes messages for it; whoever knows it may send.
        point: See `identity.web_push.BrowserKey`, as is ``secret``.
        origin: The address of the hub's pages in this browser, by which the service reaches its owner.
        language: BCP 47, of what it shows.
        name: What the person recognises it by.
    """

    __tablename__ = "push_subscription"

    id: str = Field(primary_key=True)
    user: str = Field(index=True)
    token: str
    endpoint: str
    point: str
    secret: str
    origin: str
    language: str
    name: str
    created_at: datetime = Field(sa_type=Moment)
