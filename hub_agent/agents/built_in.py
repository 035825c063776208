"""The tools that every agent may have: arithmetic, and the files below its directory."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from agent_core.arithmetic import evaluate
from agent_core.skills.skill import skill_method
from contracts.errors import CallError, ErrorCode, Forbidden
from contracts.wire import Json
from hub_agent.agents.files import AgentFiles

_log = logging.getLogger(__name__)


class BuiltInTools:
    """Each method is a tool; its docstring is what the model reads.

    Args:
        agent: Name of the agent, for the log.
    """

    def __init__(self, agent: str, files: AgentFiles) -> None:
        self._agent = agent
        self._files = files

    @skill_method(read_only=True, idempotent=True, timeout_s=5)
    def calculator(self, expression: str) -> int | float:
        """Work out an expression exactly.

        Knows + - * / // % ** and parentheses, pi, e, tau, abs, round, floor, ceil, sqrt, exp, log, sin, cos,
        tan, min, max, sum, gcd and factorial.

        Args:
            expression: For example (3 + 4) * sqrt(2).
        """
        with self._told():
            return evaluate(expression)

    @skill_method(read_only=True, idempotent=True, untrusted_output=True)
    def file_reader(self, path: str, line: int = 1) -> str:
        """Read a text file of yours.

        Args:
            path: For example reports/june.txt, as file_list gives it.
            line: The line to begin at.
        """
        with self._told(path):
            return self._files.read(path, line)

    @skill_method(idempotent=True)
    def file_writer(self, path: str, text: str, append: bool = False) -> Json:
        """Write a text file of yours; folders are made as needed.

        Args:
            path: For example reports/june.txt.
            text: What it shall hold.
            append: Whether to add to the end of a file that is there, instead of replacing it.
        """
        with self._told(path):
            return {"path": path, "bytes": self._files.write(path, text, append=append)}

    @skill_method(read_only=True, idempotent=True, untrusted_output=True)
    def file_list(self, folder: str = "") -> list[Json]:
        """List your files with their sizes.

        Args:
            folder: Only those in it and below.
        """
        with self._told(folder):
            return [each.model_dump() for each in self._files.list(folder)]

    @contextmanager
    def _told(self, path: str = "") -> Iterator[None]:
        """Report to the model what does not work; log what would lead out of the directory, too."""
        try:
            yield
        except Forbidden as error:
            _log.warning("agent %s was refused a file: %s", self._agent, error.message)
            raise CallError(ErrorCode.REFUSED, error.message, hint=error.hint) from None
        except OSError as error:
            hint = "file_list gives the files that there are." if isinstance(error, FileNotFoundError) else ""
            raise CallError(
                ErrorCode.SKILL_ERROR,
                "{path!r}: {strerror}",
                path=path[:200],
                strerror=error.strerror or error,
                hint=hint,
            ) from None
        except ValueError as error:
            raise CallError(ErrorCode.SKILL_ERROR, str(error)) from None
