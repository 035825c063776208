"""What came of trying one thing on a broker."""

from dataclasses import dataclass

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """One thing that was tried.

    Attributes:
        name: What, for example ``wrong password``.
        ok: Whether it is as it should be.
        detail: What happened.
        hint: What to do about it; may be empty.
    """

    name: str
    ok: bool
    detail: str
    hint: str = ""
