"""One browser for all tests of the built pages, cut off from the network."""

import os
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from built import HTML, ROOT
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(ROOT / "tools"))
from print_book import chromium

OPTIONS = [
    "--no-sandbox",  # root may not start it otherwise
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no other host can be found
]


@pytest.fixture(scope="session")
def browser():
    """Chromium as the system has it. Without one the tests are skipped; in continuous integration they fail."""
    executable = chromium()
    if executable is None:
        (pytest.fail if "CI" in os.environ else pytest.skip)("no Chromium found (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=OPTIONS)
        yield browser
        browser.close()


class Quiet(SimpleHTTPRequestHandler):
    """Writes no line for each request."""

    def log_message(self, *_):
        pass


@pytest.fixture(scope="session")
def server():
    """Address of a web server for the book."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=HTML)) as serving:
        Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()


@pytest.fixture(scope="session", params=["file", "server"])
def site(request):
    """Address of the folder of the book: opened from the disk, or from a web server."""
    return HTML.as_uri() if request.param == "file" else request.getfixturevalue("server")
