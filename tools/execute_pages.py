"""Execute the pages of the book whose outputs are not in the cache, as many at a time as there are processors.

Sphinx executes one page after the other; run before it, this leaves it nothing to execute. A page that fails is not
kept: Sphinx meets it again, and reports it.
"""

import os
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import yaml
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import is_myst_markdown_notebook, myst_nb_reader_plugin

ROOT = Path(__file__).resolve().parent.parent


def pages_with_cells():
    """From the last to the first: that of the claims takes the longest, and starts early."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    names = [toc["root"], *(chapter["file"] for part in toc["parts"] for chapter in part["chapters"])]
    pages = [ROOT / f"{name}.md" for name in reversed(names)]
    return [page for page in pages if is_myst_markdown_notebook(page.read_text())]


def execute_stale(cache, timeout):
    """Execute what is not in the cache, each page in its own folder, and add it."""
    known = {record.hashkey for record in cache.list_cache_records()}
    notebooks = {page: myst_nb_reader_plugin(page) for page in pages_with_cells()}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {
            pool.submit(single_nb_execution, notebook, str(page.parent), timeout, allow_errors=False): page
            for page, notebook in notebooks.items()
            if cache.create_hashed_notebook(notebook)[1] not in known
        }
        for done in as_completed(running):
            page, result = running[done], done.result()
            print(
                f"{page.relative_to(ROOT)}: {'executed' if result.err is None else 'failed'} in {result.time:.0f} s",
                flush=True,
            )
            if result.err is None:
                bundle = CacheBundleIn(result.nb, str(page), data={"execution_seconds": result.time})
                cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # of the kernels, which share the processors
    settings = yaml.safe_load((ROOT / "_config.yml").read_text())["execute"]
    execute_stale(get_cache(ROOT / settings["cache"]), settings["timeout"])
