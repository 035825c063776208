"""The table of captures in the hub's database."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, Column
from sqlmodel import Field

from hub_registry.storage.tables import Moment, Table


class CaptureRow(Table, table=True):
    """A capture that was started; it is kept when it is stopped, so that its files are still known.

    Attributes:
        instance: The hub process that records.
        spec: See `hub_live.captures.spec.CaptureSpec`.
        root: The allowed folder that its path counts from.
        begun_at: When its last file was begun, Unix seconds.
    """

    __tablename__ = "capture"

    id: str = Field(primary_key=True)
    instance: str
    owner: str
    spec: dict[str, Any] = Field(sa_column=Column(JSON, nullable=False))
    root: str
    is_stopped: bool = False
    messages: int = 0
    gaps: int = 0
    begun_at: float = 0
    created_at: datetime = Field(sa_type=Moment)
