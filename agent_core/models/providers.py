"""The providers of models: the one list that settings, gateways, setup and the command line read."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Provider:
    """One kind of server that models are asked on.

    Attributes:
        about: A word for people who choose.
        tensorzero: Its type in the configuration of TensorZero.
        address: Default base URL; empty where only TensorZero speaks its protocol, at its own address.
        key_variable: Variable that always holds a key; empty where an entry may do without.
    """

    name: str
    about: str
    tensorzero: str
    address: str = ""
    key_variable: str = ""

    @property
    def takes_address(self) -> bool:
        """Return whether an entry may name another base URL."""
        return bool(self.address)


OLLAMA_PORT: Final = 11434

PROVIDERS: Final = {
    provider.name: provider
    for provider in (
        Provider("openai", "OpenAI or compatible", "openai", address="https://api.openai.com/v1"),
        Provider(
            "ollama", "models on a machine of yours", "openai", address=f"http://127.0.0.1:{OLLAMA_PORT}"
        ),
        Provider("anthropic", "Claude", "anthropic", key_variable="ANTHROPIC_API_KEY"),
        Provider("google", "Gemini", "google_ai_studio_gemini", key_variable="GOOGLE_AI_STUDIO_API_KEY"),
    )
}
"""By the name that an entry of ``[[models]]`` has under ``provider``."""
