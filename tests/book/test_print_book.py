"""The PDF of the book, on two of its pages."""

import print_book
import pytest
from built import HTML
from pypdf import PdfReader


@pytest.fixture(scope="module")
def printed(browser, tmp_path_factory):
    files = [HTML / "book" / "home.html", HTML / "book" / "bibliography.html"]
    path = tmp_path_factory.mktemp("pdf") / "book.pdf"
    print_book.join(files, print_book.print_pages(browser, files)).write(path)
    return PdfReader(path)


def test_identity_pdf_has_the_pages_in_order(printed):
    chapters = [entry for entry in printed.outline if not isinstance(entry, list)]
    assert [chapter.title for chapter in chapters] == ["Attention, solved", "Bibliography"]
    first, second = map(printed.get_destination_page_number, chapters)
    assert first == 0 < second
    assert "samples per dimension" in printed.pages[first].extract_text()
    assert "2402.03902" in "".join(page.extract_text() for page in printed.pages[second:])


def test_identity_links_between_pages_stay_in_the_pdf(printed):
    links = [note.get_object() for page in printed.pages for note in page.get("/Annots", [])]
    bibliography = (HTML / "book" / "bibliography.html").as_uri()
    assert [link for link in links if link.get("/A", {}).get("/URI", "").startswith(bibliography)] == []
    second = printed.get_destination_page_number(printed.outline[-1])
    numbers = {page.indirect_reference.idnum: number for number, page in enumerate(printed.pages)}
    targets = [numbers[link["/Dest"][0].idnum] for link in links if isinstance(link.get("/Dest"), list)]
    assert second in targets
