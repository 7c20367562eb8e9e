"""Buttons above a page: its downloads, and those that lead to the repository once its address is known."""

from pathlib import Path

import jupytext

DOWNLOADS = {"ipynb": "ipynb", "py": "py:percent"}


def use_the_addresses(app, config):
    """Show the buttons that need a public address if there is one, and nothing that leads nowhere otherwise."""
    config.ogp_site_url = config.html_baseurl and config.html_baseurl.rstrip("/") + "/"
    theme = config.html_theme_options
    known = bool(theme.get("repository_url"))
    for button in ("repository", "issues", "edit_page"):
        theme[f"use_{button}_button"] = known
    if known and (Path(app.srcdir) / "binder").is_dir():
        theme["launch_buttons"] = {"binderhub_url": "https://mybinder.org", "notebook_interface": "jupyterlab"}


def announce_downloads(app, pagename, templatename, context, doctree):
    """Tell the theme that a page with cells has a notebook: it then has a button for it."""
    if doctree is not None and "kernelspec" in app.env.metadata[pagename]:
        context["ipynb_source"] = f"{pagename}.ipynb"


def write_downloads(app, pagename, templatename, context, doctree):
    """Write a chapter as a notebook and as a script beside its source, and offer the script after the notebook.

    Without outputs: they take the place of the executed notebook that the theme puts there if there are launch buttons.
    """
    if "ipynb_source" not in context:
        return
    notebook = jupytext.read(app.env.doc2path(pagename))
    for suffix, form in DOWNLOADS.items():
        target = Path(app.outdir) / "_sources" / f"{pagename}.{suffix}"
        target.parent.mkdir(parents=True, exist_ok=True)
        jupytext.write(notebook, target, fmt=form)
    (menu,) = [entry["buttons"] for entry in context["header_buttons"] if entry["label"] == "download-buttons"]
    (place,) = [i for i, button in enumerate(menu) if button["label"] == "download-notebook-button"]
    script = {"url": f"{context['pathto']('_sources', 1)}/{pagename}.py", "text": ".py"}
    script |= {"tooltip": "Download as a script", "label": "download-script-button"}
    menu.insert(place + 1, menu[place] | script)


def setup(app):
    app.connect("config-inited", use_the_addresses)
    app.connect("html-page-context", announce_downloads)
    app.connect("html-page-context", write_downloads, priority=502)  # the theme makes its buttons at 501
    return {"parallel_read_safe": True, "parallel_write_safe": True}
