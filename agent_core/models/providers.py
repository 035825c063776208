"""The providers of models: each says itself what settings, gateways, setup and pages need."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, kw_only=True)
class Provider:
    """One kind of server that models are asked on.

    Attributes:
        label: Its name for people.
        about: A word for people who choose in a terminal; a page shows `title`, `subtitle` and `icon`.
        tensorzero: Its type in the configuration of TensorZero.
        address: Default base URL; empty where only TensorZero speaks its protocol, at its own address.
        address_hint: What people enter who are asked for another base URL; empty if it is not asked for.
        key_variable: Variable that always holds a key; empty where an entry may do without.
        own_key: Variable that an entry names for the key at the default address.
        is_local: Whether it runs on a machine of the house, and says which models it has.
        suggested: A model of it to begin with.
    """

    name: str
    label: str
    about: str
    tensorzero: str
    title: str = ""
    subtitle: str = ""
    icon: str = "cloud"
    address: str = ""
    address_hint: str = ""
    key_variable: str = ""
    own_key: str = ""
    is_local: bool = False
    suggested: str = ""

    @property
    def takes_address(self) -> bool:
        return bool(self.address)

    def key_of(self, base_url: str | None, variable: str | None) -> str | None:
        """Return the variable that an entry names for its key.

        Args:
            variable: That of the entry alone, where there is a key.
        """
        if not self.takes_address:
            return None
        return self.own_key if self.own_key and base_url is None else variable


OLLAMA_PORT: Final = 11434

PROVIDERS: Final = {
    provider.name: provider
    for provider in (
        Provider(
            name="openai",
            label="OpenAI",
            about="OpenAI or compatible",
            tensorzero="openai",
            title="OpenAI, or compatible",
            subtitle="Also a server of your own with an address",
            icon="hub",
            address="https://api.openai.com/v1",
            address_hint="Up to and with /v1; empty for OpenAI's own",
            own_key="OPENAI_API_KEY",
        ),
        Provider(
            name="ollama",
            label="Ollama",
            about="models on a machine of yours",
            tensorzero="openai",
            title="On a machine of mine",
            subtitle="With Ollama: private, free, needs memory",
            icon="memory",
            address=f"http://127.0.0.1:{OLLAMA_PORT}",
            is_local=True,
            suggested="qwen3:4b",
        ),
        Provider(
            name="anthropic",
            label="Anthropic",
            about="Claude",
            tensorzero="anthropic",
            icon="auto_awesome",
            key_variable="ANTHROPIC_API_KEY",
        ),
        Provider(
            name="google",
            label="Google",
            about="Gemini",
            tensorzero="google_ai_studio_gemini",
            icon="blur_on",
            key_variable="GOOGLE_AI_STUDIO_API_KEY",
        ),
    )
}
"""By the name that an entry of ``[[models]]`` has under ``provider``."""
