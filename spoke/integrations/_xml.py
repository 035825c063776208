"""XML of strangers: without entities of its own and without names of namespaces."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from contracts.errors import InvalidMessage


def read_xml(content: bytes) -> Element:
    """Read a document; an element ``atom:link`` becomes ``link``, its attributes likewise.

    Raises:
        InvalidMessage: It is no XML, or declares entities, by which a page becomes a gigabyte.
    """

    def refuse(*_: object) -> None:
        raise InvalidMessage("the XML declares entities, which is refused")

    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = lambda tag, attributes: builder.start(
        _local(tag), {_local(name): value for name, value in attributes.items()}
    )
    parser.EndElementHandler = lambda tag: builder.end(_local(tag))
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = refuse
    try:
        parser.Parse(content, True)
        return builder.close()
    except (expat.ExpatError, LookupError) as error:
        raise InvalidMessage(f"it is no XML: {error}") from None


def text_of(element: Element, *names: str) -> str:
    """Return the text of the first child of these names, in their order, that has one."""
    for name in names:
        for child in element.iterfind(name):
            if text := "".join(child.itertext()).strip():
                return text
    return ""


def named(element: Element, *names: str) -> Iterator[Element]:
    return (each for each in element.iter() if each.tag in names)


def _local(name: str) -> str:
    return name.rpartition(" ")[2]
