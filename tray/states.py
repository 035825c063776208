"""What the state of the spoke is called."""

from tray.spoke import Seen
from tray.texts import Text


def state_line(seen: Seen, text: Text) -> str:
    """Return the state in a few words: who answers, and what the voice does."""
    if seen.spoke is None:
        return text("The spoke is not running")
    who = text("Connected to the hub") if seen.spoke.hub_online else text("Alone: the hub is away")
    if seen.voice is None:
        return who
    voice = text("muted") if seen.voice.muted else _voices(text).get(seen.voice.state, "")
    return f"{who} · {voice}" if voice else who


def _voices(text: Text) -> dict[str, str]:
    return {
        "listening": text("waits for its name"),
        "hearing": text("listens"),
        "thinking": text("thinks"),
        "talking": text("talks"),
        "broken": text("voice broken"),
    }
