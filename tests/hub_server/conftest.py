from tests.hub_agent.conftest import _unhurried, home, host, thinking

__all__ = ["_unhurried", "home", "host", "thinking"]
