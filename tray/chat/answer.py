"""An answer as Markdown. A model wrote it: no HTML, no pictures, and a link opens only when it is clicked."""

import math
from typing import Any, Final

from PySide6.QtCore import QSize, Qt, QTimer, QUrl
from PySide6.QtGui import (
    QColor,
    QDesktopServices,
    QImage,
    QResizeEvent,
    QTextCursor,
    QTextDocument,
    QTextOption,
    QTextTable,
)
from PySide6.QtWidgets import QFrame, QSizePolicy, QTextBrowser, QWidget

from tray import limits
from tray.chat.theme import Theme, theme

_FEATURES: Final = (
    QTextDocument.MarkdownFeature.MarkdownNoHTML | QTextDocument.MarkdownFeature.MarkdownDialectGitHub
)
_INDENT: Final = 18
_PADDING: Final = 5


class Answer(QTextBrowser):
    """Shows Markdown as high as it is."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.text = ""
        self.setObjectName("answer")
        self.setOpenLinks(False)
        self.anchorClicked.connect(_open)
        self.highlighted.connect(lambda url: self.setToolTip(url.toString()))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.document().setDocumentMargin(0)
        self.document().setIndentWidth(_INDENT)
        self.setWordWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        for set_policy in (self.setVerticalScrollBarPolicy, self.setHorizontalScrollBarPolicy):
            set_policy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setFixedHeight(0)
        self._timer = QTimer(self, singleShot=True, interval=limits.REDRAW_MS)
        self._timer.timeout.connect(self.redraw)

    def append_text(self, text: str) -> None:
        """Add a piece; it is seen a little later."""
        self.text += text
        if not self._timer.isActive():
            self._timer.start()

    def show_text(self, text: str) -> None:
        """Show this text and no other."""
        self.text = text
        self._timer.stop()
        self.redraw()

    def redraw(self) -> None:
        """Show what there is."""
        self.document().setMarkdown(self.text, _FEATURES)
        _style(self.document(), theme())
        self._fit()

    def loadResource(self, kind: int, name: QUrl | str) -> Any:  # noqa: N802  Qt's name
        # An answer may name any file of this machine, which Qt reads where this returns None.
        return QImage()

    def resizeEvent(self, event: QResizeEvent) -> None:  # noqa: N802
        """Adjust the height to that of the text at the new width."""
        super().resizeEvent(event)
        self._fit()

    def minimumSizeHint(self) -> QSize:  # noqa: N802
        return QSize(0, 0)

    def _fit(self) -> None:
        self.document().setTextWidth(self.viewport().width())
        self.setFixedHeight(math.ceil(self.document().size().height()) if self.text else 0)


def _style(document: QTextDocument, colours: Theme) -> None:
    """Style code and tables; lines of code wrap, because there is no bar to move them by."""
    block = document.begin()
    while block.isValid():
        if (code := block.blockFormat()).nonBreakableLines():
            code.setNonBreakableLines(False)
            code.setBackground(QColor(colours.code))
            QTextCursor(block).setBlockFormat(code)
        block = block.next()
    for frame in document.rootFrame().childFrames():
        if isinstance(frame, QTextTable):
            table = frame.format().toTableFormat()
            table.setCellPadding(_PADDING)
            table.setBorderCollapse(True)
            table.setBorder(1)
            table.setBorderBrush(QColor(colours.line))
            table.setTopMargin(_PADDING)
            table.setBottomMargin(_PADDING)
            frame.setFormat(table)


def _open(url: QUrl) -> None:
    if url.scheme() in ("http", "https"):
        QDesktopServices.openUrl(url)
