"""Print the built book to one PDF: `make pdf`. Needs Chromium (Debian: apt-get install chromium).

The pages are printed one by one, as their print style has them, and joined in the order of the table of contents. The
outline has their headings, and a link to another page leads to it.
"""

import io
import shutil
import sys
from urllib.parse import urldefrag

from contents import ROOT, page_names
from playwright.sync_api import sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, NameObject

HTML = ROOT / "_build" / "html"
MARGINS = {"margin": {"left": "20mm", "right": "20mm", "top": "18mm", "bottom": "18mm"}}
MINUTE = 60_000  # milliseconds


def pages():
    """The built pages in the order of the table of contents."""
    return [HTML / f"{name}.html" for name in page_names()]


def chromium():
    """Path of Chromium as the system has it, or None."""
    return next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)


def print_pages(browser, files):
    """Yield each page as a PDF in memory, its formulas set and its figures loaded."""
    for file in files:
        page = browser.new_page(color_scheme="light")
        page.set_default_timeout(5 * MINUTE)
        page.goto(file.as_uri())
        page.wait_for_function("!window.MathJax || MathJax.startup?.promise?.then(() => true)")
        yield page.pdf(format="A4", scale=0.85, outline=True, tagged=True, print_background=True, **MARGINS)
        page.close()


def join(files, printed):
    """One PDF of all pages, whose links to one another stay inside."""
    book, first = PdfWriter(), {}
    for file, content in zip(files, printed, strict=True):
        first[file.as_uri()] = len(book.pages)
        book.append(PdfReader(io.BytesIO(content)))
    for page in book.pages:
        for annotation in page.get("/Annots", []):
            link = annotation.get_object()
            target = urldefrag(link.get("/A", {}).get("/URI", ""))[0]
            if target in first:
                del link["/A"]
                top = [book.pages[first[target]].indirect_reference, NameObject("/Fit")]
                link[NameObject("/Dest")] = ArrayObject(top)
    return book


if __name__ == "__main__":
    executable = chromium()
    if executable is None:
        sys.exit("no Chromium found (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--disable-gpu"])
        files = pages()
        book = join(files, print_pages(browser, files))
        browser.close()
    book.compress_identical_objects()
    out = ROOT / "_build" / "book.pdf"
    book.write(out)
    print(f"The book on {len(book.pages)} pages: {out}")
