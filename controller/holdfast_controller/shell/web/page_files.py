"""The page's files, which the package carries: read once, and answered from memory."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from holdfast._base.dataclass import dataclass
from holdfast.errors import NotFound
from holdfast_controller.shell.rest.errors import Refusal

FOLDER = Path(__file__).parents[2] / "page"
"""``index.html``, and ``assets`` whose names hold a hash of their content; built by ``make web``."""
TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "ico": "image/x-icon",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "map": "application/json",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}
ENCODINGS = {"br": ".br", "gzip": ".gz"}
"""The better one first."""
FOREVER = "public, max-age=31536000, immutable"
NOT_BUILT = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Holdfast</title></head><body>
<h1>Holdfast</h1>
<p>The controller runs; this installation was made without its web page.</p>
<p>In a checkout, <code>make web</code> builds it (this needs Node.js). Packages and wheels carry it.
Until then use the command line: <code>holdfast status</code>.</p>
</body></html>
"""


@dataclass(frozen=True)
class File:
    """One file of the page, as it is and as it was compressed, by encoding."""

    media_type: str
    forms: dict[str, bytes]


class PageFiles:
    """Everything that a browser may have without being signed in."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {path.name: _read(path) for path in sorted((folder / "assets").glob("*")) if _is_plain(path)}
        index = folder / "index.html"
        self._index = _read(index) if index.is_file() else File(TYPES["html"], {"": NOT_BUILT})

    def asset(self, request: Request) -> Response:
        """A file by its name. Raises ``Refusal``."""
        file = self._files.get(request.path_params["name"])
        if file is None:
            raise Refusal(404, NotFound("The page has no such file.", fix="Load the page again."))
        return _answer(request, file, FOREVER)

    def shell(self, request: Request) -> Response:
        """The document, the same for each of the page's own addresses."""
        return _answer(request, self._index, "no-cache")


def _is_plain(path: Path) -> bool:
    return path.is_file() and path.suffix.removeprefix(".") in TYPES


def _read(path: Path) -> File:
    forms = {"": path.read_bytes()}
    for encoding, suffix in ENCODINGS.items():
        packed = path.with_name(path.name + suffix)
        if packed.is_file():
            forms[encoding] = packed.read_bytes()
    return File(TYPES[path.suffix.removeprefix(".")], forms)


def _answer(request: Request, file: File, caching: str) -> Response:
    taken = re.split(r"[\s,;]+", request.headers.get("accept-encoding", "").lower())
    encoding = next((each for each in ENCODINGS if each in file.forms and each in taken), "")
    headers = {"Content-Type": file.media_type, "Cache-Control": caching, "Vary": "Accept-Encoding"}
    if encoding:
        headers["Content-Encoding"] = encoding
    return Response(file.forms[encoding], headers=headers)
