"""A real browser behind a proxy of ours: shows a folder as a site, and logs what pages ask for.

The browser asks for things of its own, too. So every page comes with a policy that lets the browser
tell whatever the page wanted from elsewhere, encrypted or not.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
HOST = "http://site.test/"
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--no-first-run",
    "--proxy-bypass-list=<-loopback>",
)


POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; report-uri /report"


class Site:
    """A folder as ``http://site.test/``, what was requested of it, and of anybody else."""

    def __init__(self, folder: Path, port: int, profile: Path):
        self.folder, self.port, self.profile = folder, port, profile
        self.asked: list[str] = []
        self.asked_elsewhere: list[str] = []

    def dom(self, page: str, milliseconds: int = 4000) -> str:
        """A page's elements as they are after so much time, its scripts run."""
        words = [*QUIET, f"--proxy-server=127.0.0.1:{self.port}", f"--user-data-dir={self.profile}"]
        words += [f"--virtual-time-budget={milliseconds}", "--dump-dom", HOST + page]
        command = [CHROMIUM or "", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        return done.stdout


class Server(ThreadingHTTPServer):
    """A browser that has what it came for hangs up; that is no error."""

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def site(folder: Path, profile: Path) -> Iterator[Site]:
    """Serve ``folder`` to a browser that can reach nothing else."""

    class Proxy(SimpleHTTPRequestHandler):
        def do_GET(self):
            url = self.path
            shown.asked.append(url)
            if not url.startswith(HOST):
                self.send_error(403)
                return
            self.path = urlsplit(url).path
            super().do_GET()

        def do_POST(self):
            length = int(self.headers.get("Content-Length", 0))
            if self.path == f"{HOST}report":
                told = json.loads(self.rfile.read(length))
                shown.asked_elsewhere.append(told["csp-report"]["blocked-uri"])
            self.send_response(204 if self.path.startswith(HOST) else 403)
            super().end_headers()

        def do_CONNECT(self):
            self.send_error(403)

        def end_headers(self):
            self.send_header("Content-Security-Policy-Report-Only", POLICY)
            super().end_headers()

        def log_message(self, format, *args):
            pass

    server = Server(("127.0.0.1", 0), partial(Proxy, directory=str(folder)))
    shown = Site(folder, server.server_address[1], profile)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
