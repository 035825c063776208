"""What the pages say; see `agent_core.texts`."""

from agent_core.texts import LANGUAGE, ZONE, Translator, catalogue, choose, languages, text

__all__ = ["LANGUAGE", "ZONE", "Translator", "catalogue", "choose", "languages", "text"]
