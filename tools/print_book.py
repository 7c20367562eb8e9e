"""Print the built book to one PDF: `make pdf`. Needs Chromium (Debian: apt-get install chromium).

The pages are printed one by one, as their print style has them, joined in the order of the table of contents, and
numbered. The outline has their headings, and a link leads to its place, also on another page.
"""

import io
import re
import shutil
import sys
from urllib.parse import unquote, urldefrag, urljoin

from contents import ROOT, page_names
from playwright.sync_api import sync_playwright
from pypdf import PdfReader, PdfWriter
from pypdf.generic import ArrayObject, FloatObject, NameObject

HTML = ROOT / "_build" / "html"
MARGINS = {"margin": {"left": "20mm", "right": "20mm", "top": "18mm", "bottom": "18mm"}}
MINUTE = 60_000  # milliseconds
# Chromium knows in a PDF the places that a link of the same page leads to. So each place gets one, which is not seen.
MARK = """places => {
    const links = document.createElement("div");
    links.style.cssText = "position: absolute; opacity: 0; font-size: 1px; line-height: 0";
    for (const place of places) {
        const link = document.createElement("a");
        link.href = "#" + encodeURIComponent(place);
        links.append(link);
    }
    document.querySelector("article").append(links);
}"""


def pages():
    """The built pages in the order of the table of contents."""
    return [HTML / f"{name}.html" for name in page_names()]


def chromium():
    """Path of Chromium as the system has it, or None."""
    return next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])), None)


def wanted(files):
    """Places in each page that the pages link to: a set of anchors for each address."""
    places = {file.as_uri(): set() for file in files}
    for file in files:
        for link in re.findall(r'href="([^"]*#[^"]+)"', file.read_text()):
            address, place = urldefrag(urljoin(file.as_uri(), link))
            if address in places:
                places[address].add(unquote(place))
    return places


def print_pages(browser, files):
    """Yield each page as a PDF in memory, its formulas set and its figures loaded."""
    places = wanted(files)
    for file in files:
        page = browser.new_page(color_scheme="light")
        page.set_default_timeout(5 * MINUTE)
        page.goto(file.as_uri())
        page.wait_for_function("!window.MathJax || MathJax.startup?.promise?.then(() => true)")
        page.evaluate(MARK, sorted(places[file.as_uri()]))
        yield page.pdf(format="A4", scale=0.85, outline=True, tagged=True, print_background=True, **MARGINS)
        page.close()


def numbers(browser, count):
    """A PDF of empty pages with their numbers at the foot."""
    page = browser.new_page()
    page.set_content("<div style='break-after: page'>&nbsp;</div>" * (count - 1) + "&nbsp;")
    foot = "<span class='pageNumber' style='font-size: 9px; width: 100%; text-align: center'></span>"
    plain = {"display_header_footer": True, "header_template": "<span></span>", "footer_template": foot}
    content = page.pdf(format="A4", **plain, **MARGINS)
    page.close()
    return PdfReader(io.BytesIO(content))


def join(files, printed):
    """One PDF of all pages, whose links to one another stay inside."""
    book, places, source = PdfWriter(), {}, []
    for file, content in zip(files, printed, strict=True):
        address, first, part = file.as_uri(), len(book.pages), PdfReader(io.BytesIO(content))
        places[address, ""] = (first, None)
        for name, place in part.named_destinations.items():
            places[address, unquote(name.removeprefix("/"))] = (
                first + part.get_destination_page_number(place),
                place.top,
            )
        book.append(part)
        source += [address] * len(part.pages)
    for page, address in zip(book.pages, source, strict=True):
        for annotation in page.get("/Annots", []):
            link = annotation.get_object()
            # Two chapters may have a section of one name: where the link leads depends on the chapter it is in.
            inside, outside = link.get("/Dest", ""), link.get("/A", {}).get("/URI", "")
            target, name = (address, inside.removeprefix("/")) if inside else urldefrag(outside)
            if (target, "") in places:
                number, top = places.get((target, unquote(name))) or places[target, ""]
                where = ["/Fit"] if top is None else ["/XYZ", 0, top, 0]
                where = [NameObject(x) if isinstance(x, str) else FloatObject(x) for x in where]
                link.pop("/A", None)
                link[NameObject("/Dest")] = ArrayObject([book.pages[number].indirect_reference, *where])
    return book


def bound(browser, files):
    """The book: all pages in one, with their numbers."""
    book = join(files, print_pages(browser, files))
    for page, number in zip(book.pages, numbers(browser, len(book.pages)).pages, strict=True):
        page.merge_page(number)
        page.compress_content_streams()  # which merging has undone
    return book


if __name__ == "__main__":
    executable = chromium()
    if executable is None:
        sys.exit("no Chromium found (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--disable-gpu"])
        book = bound(browser, pages())
        browser.close()
    book.compress_identical_objects()
    out = ROOT / "_build" / "book.pdf"
    book.write(out)
    print(f"The book on {len(book.pages)} pages: {out}")
