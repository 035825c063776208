"""What is made of the operations is what is checked in."""

from deploy.cli.resources import DECLARATIONS
from tests.generated import HTTP, commands, tables


def test_the_commands_are_those_of_the_operations() -> None:
    assert commands() == DECLARATIONS.read_text("utf-8"), "run: make generated"


def test_the_tables_of_http_are_those_of_the_operations() -> None:
    document = HTTP.read_text("utf-8")
    assert tables(document) == document, "run: make generated"
