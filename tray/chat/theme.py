"""Colours of the window, light and dark as the desktop is."""

from dataclasses import asdict, dataclass
from importlib.resources import files
from string import Template
from typing import Final, TypeVar

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QGuiApplication, QPalette
from PySide6.QtWidgets import QWidget

W = TypeVar("W", bound=QWidget)


@dataclass(frozen=True)
class Theme:
    """Colours by what they are for, by default light ones.

    Each pair of text and ground has a contrast of 4.5 or more.
    """

    ground: str = "#fbf8f6"
    raised: str = "#ffffff"
    line: str = "#e4dcd8"
    text: str = "#241c1d"
    faint: str = "#6d6062"
    accent: str = "#b3263f"
    on_accent: str = "#ffffff"
    asked: str = "#f6e3e5"
    code: str = "#f0ebe8"
    problem: str = "#9c1c2b"
    problem_ground: str = "#fdeceb"
    question_ground: str = "#fff6e2"
    question_line: str = "#e0b75c"


LIGHT: Final = Theme()
DARK: Final = Theme(
    ground="#1c1819",
    raised="#272223",
    line="#3d3536",
    text="#f2ebeb",
    faint="#b3a5a7",
    accent="#e05a70",
    on_accent="#1c1012",
    asked="#46262c",
    code="#2e2829",
    problem="#ffb0ae",
    problem_ground="#3c2122",
    question_ground="#352c1b",
    question_line="#8f7434",
)


def theme() -> Theme:
    return DARK if QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark else LIGHT


def palette(colours: Theme) -> QPalette:
    """Return the palette of widgets that no style sheet reaches, and of links."""
    made = QPalette()
    for role, colour in {
        QPalette.ColorRole.Window: colours.ground,
        QPalette.ColorRole.Base: colours.raised,
        QPalette.ColorRole.Text: colours.text,
        QPalette.ColorRole.WindowText: colours.text,
        QPalette.ColorRole.PlaceholderText: colours.faint,
        QPalette.ColorRole.Highlight: colours.accent,
        QPalette.ColorRole.HighlightedText: colours.on_accent,
        QPalette.ColorRole.Link: colours.accent,
    }.items():
        made.setColor(role, QColor(colour))
    return made


def style_sheet(colours: Theme) -> str:
    """Return the style sheet of the window."""
    template = Template((files("tray.chat") / "window.qss").read_text("utf-8"))
    return template.substitute(asdict(colours))


def named(widget: W, name: str) -> W:
    """Set the name that a widget has in the style sheet; return the widget."""
    widget.setObjectName(name)
    return widget
