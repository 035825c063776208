"""The Home Assistant of ``[home_assistant]``: how the hub uses it, and its settings written."""

from pathlib import Path

from pydantic import SecretStr

from agent_core.models.entries import SETTINGS_FILE, read_tables, read_variable
from deploy.directory import Home
from deploy.home.brokers.bus import read_authority
from deploy.settings.settings import HomeAssistantTable, read_table
from hub_agent.settings import HomeAssistantAccess
from identity.files import write_private


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
    given = table.model_dump(include={"confirm", "hide", "expose", "unasked"})
    return HomeAssistantAccess(url=url, token=token, ca=ca, **given)


def write_home_assistant(directory: Path, url: str, token: SecretStr, *, variable: str) -> None:
    """Write address and token; everything else in the files stays as it is.

    Raises:
        ConfigError: If a file cannot be used as it is.
    """
    import tomlkit

    from agent_core.setup.writing import write_key

    read_tables(directory)
    file = directory / SETTINGS_FILE
    # The token first: an address without it is named as a problem at each start.
    write_key(directory, variable, token)
    document = tomlkit.parse(file.read_text("utf-8") if file.exists() else "")
    document.setdefault("home_assistant", tomlkit.table())["url"] = url
    write_private(file, tomlkit.dumps(document).encode())
