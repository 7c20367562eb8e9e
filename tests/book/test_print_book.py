"""The PDF of the book, on two of its pages, and on two small ones."""

import print_book
import pytest
from built import HTML
from pypdf import PdfReader


@pytest.fixture(scope="module")
def printed(browser, tmp_path_factory):
    files = [HTML / "book" / "home.html", HTML / "book" / "bibliography.html"]
    path = tmp_path_factory.mktemp("pdf") / "book.pdf"
    print_book.bound(browser, files).write(path)
    return PdfReader(path)


def leads_to(pdf):
    """Numbers of the pages that the links inside a PDF lead to, in the order of the links."""
    numbers = {page.indirect_reference.idnum: number for number, page in enumerate(pdf.pages)}
    links = [note.get_object() for page in pdf.pages for note in page.get("/Annots", [])]
    return [numbers[link["/Dest"][0].idnum] for link in links if isinstance(link.get("/Dest"), list)]


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
    assert second in leads_to(printed)


def test_identity_pdf_has_the_numbers_of_its_pages(printed):
    feet = [page.extract_text().splitlines()[-1] for page in printed.pages]
    assert feet == [str(number + 1) for number in range(len(printed.pages))]


def test_closed_form_of_links_to_places(browser, tmp_path):
    """Two pages that have a section of the same name; the end of the second has a name that nothing there links to."""
    on_a_new_page = "<h2 id='{0}' style='break-before: page'>{0}</h2>"
    first = "<a href='#part'>here</a> <a href=\"two.html#the end\">end</a> <a href='two.html'>two</a>"
    second = "<a href='#part'>here</a> <a href=\"one.html#part\">there</a> <a href='https://arxiv.org'>outside</a>"
    (tmp_path / "one.html").write_text(f"<article>{first}{on_a_new_page.format('part')}</article>")
    ends = on_a_new_page.format("part") + on_a_new_page.format("the end")
    (tmp_path / "two.html").write_text(f"<article>{second}{ends}</article>")
    print_book.bound(browser, [tmp_path / "one.html", tmp_path / "two.html"]).write(tmp_path / "book.pdf")
    book = PdfReader(tmp_path / "book.pdf")
    assert len(book.pages) == 5
    assert leads_to(book) == [1, 4, 2, 3, 1]
