"""Texts as they may be shown: not too long, and nothing in them that is not seen."""


def shortened(text: str, most: int) -> str:
    """Return a text of at most so many characters; a longer one ends in ``…``."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def escaped(text: str, *, keep: str = "") -> str:
    r"""Return a text in which what is not seen, or turns the rest around, is written as ``\u202e``.

    Names and arguments come from devices and models: nothing in a question may make it look like another.

    Args:
        keep: Characters that stay as they are, such as line ends where a text may have many lines.
    """
    return "".join(each if each.isprintable() or each in keep else f"\\u{ord(each):04x}" for each in text)


def storable(text: str) -> str:
    """Join surrogate pairs that arrived in two pieces; a lone half becomes U+FFFD, as none can be stored."""
    stored = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text if text == stored else stored  # a phrase stays one
