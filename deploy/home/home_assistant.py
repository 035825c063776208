"""The Home Assistant of ``[home_assistant]``: how the hub uses it, and its settings written."""

from pydantic import SecretStr, ValidationError

from agent_core.models.entries import read_variable
from contracts.answers.system import HomeAssistantRules, HomeAssistantTrial
from contracts.errors import ConfigError
from deploy.directory import Home
from deploy.home.brokers.bus import read_authority
from deploy.settings.settings import HomeAssistantTable, read_or_default, read_table, write_table
from hub_agent.settings import HomeAssistantAccess


def choose_home_assistant(home: Home) -> HomeAssistantAccess | None:
    """Return how the hub uses Home Assistant; None where no address of it is set.

    Raises:
        ConfigError: If ``[home_assistant]`` or what it names cannot be used.
    """
    table = read_table(home, "home_assistant", HomeAssistantTable)
    if table is None or table.url is None:
        return None
    return access(home, table, table.url, SecretStr(read_variable(home.directory, table.token_env)))


def access(home: Home, table: HomeAssistantTable, url: str, token: SecretStr) -> HomeAssistantAccess:
    """Return how a Home Assistant is used with these settings.

    Raises:
        ConfigError: If its certificate authority cannot be used.
    """
    ca = None if table.ca is None else read_authority(home.directory / table.ca)
    given = table.model_dump(include=set(HomeAssistantRules.model_fields))
    return HomeAssistantAccess(url=url, token=token, ca=ca, **given)


def read_access_table(home: Home, url: str | None = None) -> HomeAssistantTable:
    """Return ``[home_assistant]``, with another address.

    Raises:
        ConfigError: If this is no address.
    """
    present = read_or_default(home, "home_assistant", HomeAssistantTable)
    if url is None:
        return present
    try:
        return HomeAssistantTable.model_validate({**present.model_dump(), "url": url})
    except ValidationError:
        hint = "Write it as http://homeassistant.local:8123."
        raise ConfigError("{url!r} is no address of Home Assistant", url=url[:200], hint=hint) from None


def check_token(token: str) -> SecretStr:
    """Return what a person copied as a token.

    Raises:
        ConfigError: If it cannot be one.
    """
    if not token.isascii() or not token:
        raise ConfigError(
            "this is not a token: it is empty, or has letters that no token has", hint="Copy it again."
        )
    return SecretStr(token)


async def try_home_assistant(home: Home, url: str, token: SecretStr) -> HomeAssistantTrial:
    """Try address and token as the hub would use them.

    Raises:
        ConfigError: If the settings cannot be used.
        LinkError: If it is not there, or refuses the token.
    """
    from hub_home_assistant.inward.trial import try_access  # zeroconf is imported with it

    return await try_access(access(home, read_access_table(home, url), url, token))


def write_home_assistant(home: Home, url: str, token: SecretStr) -> None:
    """Write address and token; everything else in the files stays as it is.

    Raises:
        ConfigError: If a file cannot be used as it is.
    """
    from agent_core.setup.writing import write_key

    variable = read_access_table(home).token_env
    # The token first: an address without it is named as a problem at each start.
    write_key(home.directory, variable, token)
    write_table(home.directory, "home_assistant", {"url": url})
