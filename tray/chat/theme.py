"""Colours of the window, light and dark as the desktop is."""

from dataclasses import dataclass
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
    c = colours
    return f"""
    #window, #exchanges, #header {{ background: {c.ground}; color: {c.text}; }}
    QLabel {{ color: {c.text}; background: transparent; }}
    #header {{ border-bottom: 1px solid {c.line}; }}
    #device {{ font-weight: 600; }}
    #state, #doing, #empty {{ color: {c.faint}; }}
    #asked {{ background: {c.asked}; border-radius: 12px; padding: 8px 12px; }}
    #answer {{ background: transparent; border: none; color: {c.text}; }}
    #problem {{ background: {c.problem_ground}; border-radius: 10px; }}
    #problem QLabel {{ color: {c.problem}; }}
    #problem #hint {{ color: {c.text}; }}
    #question {{ background: {c.question_ground}; border: 1px solid {c.question_line};
        border-radius: 10px; }}
    #call {{ font-weight: 600; }}
    #name {{ color: {c.faint}; }}
    QLineEdit {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.line};
        border-radius: 10px; padding: 8px 12px; selection-background-color: {c.accent};
        selection-color: {c.on_accent}; }}
    QLineEdit:focus {{ border-color: {c.accent}; }}
    QPushButton, QToolButton {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.line};
        border-radius: 10px; padding: 8px 14px; }}
    QToolButton {{ padding: 5px 9px; }}
    QToolButton::menu-indicator {{ image: none; width: 0; }}
    QPushButton:hover, QToolButton:hover, QPushButton:focus, QToolButton:focus {{
        border-color: {c.accent}; }}
    QToolButton:checked {{ background: {c.asked}; }}
    QPushButton:disabled {{ color: {c.faint}; }}
    #primary {{ background: {c.accent}; color: {c.on_accent}; border-color: {c.accent};
        font-weight: 600; }}
    #primary:focus {{ border: 2px solid {c.text}; padding: 7px 13px; }}
    #primary:disabled {{ background: {c.raised}; color: {c.faint}; border-color: {c.line}; }}
    QScrollArea {{ border: none; background: {c.ground}; }}
    QScrollBar:vertical {{ background: transparent; width: 10px; margin: 2px; }}
    QScrollBar::handle:vertical {{ background: {c.line}; border-radius: 3px; min-height: 24px; }}
    QScrollBar::add-line, QScrollBar::sub-line {{ height: 0; }}
    QMenu {{ background: {c.raised}; color: {c.text}; border: 1px solid {c.line}; padding: 4px; }}
    QMenu::item {{ padding: 6px 24px 6px 28px; border-radius: 6px; }}
    QMenu::item:selected {{ background: {c.asked}; }}
    QMenu::item:disabled {{ color: {c.faint}; }}
    QMenu::separator {{ height: 1px; background: {c.line}; margin: 4px 8px; }}
    """


def named(widget: W, name: str) -> W:
    """Set the name that a widget has in the style sheet; return the widget."""
    widget.setObjectName(name)
    return widget
