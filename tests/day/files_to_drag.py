"""Show a window from which files can be dragged into another program: files_to_drag.py FILE …"""

from __future__ import annotations

import sys

from qtpy.QtCore import QMimeData, Qt, QUrl
from qtpy.QtGui import QDrag, QMouseEvent
from qtpy.QtWidgets import QApplication, QLabel


class Files(QLabel):
    """A window that begins to drag the files when the mouse is moved with its button down."""

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        drag, data = QDrag(self), QMimeData()
        data.setUrls([QUrl.fromLocalFile(path) for path in sys.argv[1:]])
        drag.setMimeData(data)
        # The other program takes them here.
        drag.actionChanged.connect(lambda action: print(action, flush=True))
        drag.exec(Qt.DropAction.CopyAction)


app = QApplication(sys.argv[:1])
files = Files(f"{len(sys.argv) - 1} files")
files.setWindowTitle("files to drag")
files.resize(200, 100)
files.show()
app.exec()
