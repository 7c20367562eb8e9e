"""Execute the pages of the book whose outputs are not in the cache, as many at a time as there are processors.

Sphinx executes one page after the other; run before it, this leaves it nothing to execute. A page that fails is not
kept: Sphinx meets it again, and reports it. When a page asks for the evidence for the claims, that is computed too, as
part of the same queue: first, since it takes long; the pages that read it come last.
"""

import os
import time
import warnings

import yaml
from contents import ROOT, page_names
from joblib import Parallel, delayed
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import is_myst_markdown_notebook, myst_nb_reader_plugin


def pages_with_cells():
    """In the order of the book."""
    pages = [ROOT / f"{name}.md" for name in page_names()]
    return [page for page in pages if is_myst_markdown_notebook(page.read_text())]


def stale_pages(cache):
    """Page to notebook, for what is not in the cache."""
    known = {record.hashkey for record in cache.list_cache_records()}
    notebooks = {page: myst_nb_reader_plugin(page) for page in pages_with_cells()}
    return {page: nb for page, nb in notebooks.items() if cache.create_hashed_notebook(nb)[1] not in known}


def execute(page, notebook, timeout):
    """Execute a page in its own folder."""
    result = single_nb_execution(notebook, str(page.parent), timeout, allow_errors=False)
    return page, result.time, result.err, result.nb


def verify(ids):
    """Leave the evidence for some claims in the folder named by ATTN_LIB_EVIDENCE."""
    from attn_lib import claims

    started, error = time.perf_counter(), None
    try:
        claims.verify_each(ids)
    except Exception as caught:  # the page will meet it again
        error = caught
    return ids, time.perf_counter() - started, error, None


def queue(pages, timeout):
    """What is to be done."""
    asking = [page for page in pages if "claims.verify" in page.read_text()]
    if asking and "ATTN_LIB_EVIDENCE" in os.environ:
        from attn_lib import claims

        yield from (delayed(verify)(ids) for ids in claims.missing())
    for page in sorted(pages, key=asking.__contains__):
        yield delayed(execute)(page, pages[page], timeout)


def main():
    """Execute and keep."""
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes, which share the processors
    settings = yaml.safe_load((ROOT / "_config.yml").read_text())["execute"]
    cache, timeout = get_cache(ROOT / settings["cache"]), settings["timeout"]  # of a cell
    # A page whose cell takes too long is given up; evidence that does, stops everything.
    # joblib replaces a process whose memory has grown between tasks, and says so; nothing is lost.
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
    workers = Parallel(n_jobs=-1, batch_size=1, return_as="generator_unordered", timeout=2 * timeout)
    for what, seconds, error, notebook in workers(queue(stale_pages(cache), timeout)):
        name = what.relative_to(ROOT) if notebook else f"evidence for {', '.join(what)}"
        print(f"{name}: {'done' if error is None else 'failed'} in {seconds:.0f} s", flush=True)
        if notebook and error is None:
            bundle = CacheBundleIn(notebook, str(what), data={"execution_seconds": seconds})
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


if __name__ == "__main__":
    main()
