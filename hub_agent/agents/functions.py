"""Functions of Python files beside the profiles as tools."""

import inspect
from pathlib import Path

from agent_core.skills.loader import LoadedMethod, explained, import_file
from agent_core.skills.schema import SchemaError, method_schema
from agent_core.skills.skill import MethodOptions
from contracts.errors import ConfigError
from hub_agent.agents.profile import PythonTool


def load_function(tool: PythonTool, directory: Path) -> LoadedMethod:
    """Load a function. This imports the file, so it blocks and runs the code of its author.

    Args:
        directory: Where the profiles are.

    Raises:
        ConfigError: If it cannot be reached, or its signature cannot be described.
    """
    name, _, function_name = tool.python.partition(":")
    file = directory / name
    if not file.is_file():
        raise ConfigError(f"there is no file {file}", hint="It lies beside the profile.")
    try:
        module = import_file(file)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - an import runs the author's code
        raise ConfigError(f"{file} cannot be imported: {explained(error, file)}") from None
    function = getattr(module, function_name, None)
    if not inspect.isroutine(function):
        raise ConfigError(f"{file} has no function {function_name}")
    options = MethodOptions(flags=tool.flags, timeout_s=tool.timeout_s)
    try:
        return LoadedMethod(method_schema(function, function_name, options), function, None)
    except SchemaError as error:
        raise ConfigError(f"{file}: {function_name}: {error.message}", hint=error.hint) from None
    except Exception as error:  # noqa: BLE001 - hints and defaults are the author's code, too
        raise ConfigError(f"{file}: {function_name}: {explained(error, file)}") from None
