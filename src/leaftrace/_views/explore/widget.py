"""The explorer as a widget in a notebook: the page's own modules in a frame, without a server.

The frame has no origin and may ask no host. Its questions go to the notebook's page as messages, from
there to the kernel, and the answers back, so that it also works where the kernel is on another machine.
"""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from .jobs import Latest
from .one_file import one_file, static_files
from .server import NAMES, Answers, answered

_MESSAGES = """
const waiting = new Map();
let asked = 0;
addEventListener("message", ({ data }) => {
  waiting.get(data.id)?.(data);
  waiting.delete(data.id);
});
globalThis.leaftracePost = (name, body) => new Promise((resolve) => {
  waiting.set(++asked, resolve);
  parent.postMessage({ id: asked, name, asked: body }, "*");
});
"""  # questions of the page as messages


class ExplorerWidget(anywidget.AnyWidget):
    """The explorer in a notebook.

    ``page``    what its frame shows
    ``height``  of the frame, in pixels
    """

    _esm = static_files()["widget.js"].decode()
    page = traitlets.Unicode().tag(sync=True)
    height = traitlets.Int(900).tag(sync=True)

    def __init__(self, answers: Answers, height: int) -> None:
        super().__init__(page=one_file(_MESSAGES).html, height=height)
        self._answers = answers
        self._latest = Latest()
        self.on_msg(self._on_question)

    def _on_question(self, _: Any, content: Any, __: Any) -> None:
        """Answer a question of the frame."""
        name = content.get("name")
        asked = content.get("asked")
        status, answer = 404, {"error": "there is no such answer"}
        if name in NAMES and isinstance(asked, dict):
            check = self._latest.begin(str(asked.get("client", ""))[:64], name)
            status, answer = answered(getattr(self._answers, name), asked, check)
        self.send({"id": content.get("id"), "status": status, "answer": answer})
