"""The pages of modules: each names the chapters that use the module; the sidebar unfolds only the room that is open."""

import re
from pathlib import Path

from docutils import nodes

CHAPTER = re.compile(r"book/part[12]/")


def mentioned(text):
    """Full names of what a chapter names or imports from attn_lib."""
    names = set(re.findall(r"\battn_lib(?:\.\w+)+", text))
    for package, what in re.findall(r"^from (attn_lib[.\w]*) import (\([^)]*\)|.*)$", text, re.MULTILINE):
        names |= {f"{package}.{name}" for name in re.findall(r"\w+", what)}
    return names


def find_chapters(app, env):
    """Note for each page of a module the chapters that use it, in reading order; say which pages have changed."""
    chapters = [page for page in env.toctree_includes[app.config.root_doc] if CHAPTER.match(page)]
    names = {chapter: mentioned(Path(env.doc2path(chapter)).read_text()) for chapter in chapters}
    before, env.chapters_of_modules = getattr(env, "chapters_of_modules", {}), {}
    for module, entry in env.get_domain("py").modules.items():
        if entry.docname.count("/") == 3:
            env.chapters_of_modules[entry.docname] = [
                chapter for chapter in chapters if any(f"{name}.".startswith(f"{module}.") for name in names[chapter])
            ]
    return [page for page, found in env.chapters_of_modules.items() if found != before.get(page)]


def name_chapters(app, doctree, docname):
    """Add the chapters to the first line of a page, which has the name of the module."""
    chapters = getattr(app.env, "chapters_of_modules", {}).get(docname)
    if not chapters:
        return
    line = next(doctree.findall(nodes.paragraph))
    line += nodes.Text(", used in ")
    for chapter in chapters:
        address = app.builder.get_relative_uri(docname, chapter)
        line += [nodes.reference("", app.env.titles[chapter].astext(), refuri=address, internal=True), nodes.Text(", ")]
    line[-1] = nodes.Text(".")


def leave_out_plain_fields(app, what, name, member, skip, options):
    """Leave out the fields of a named tuple that Python alone describes; its signature has them."""
    return True if (getattr(member, "__doc__", None) or "").startswith("Alias for field number") else None


def unfold_one_room(app, config):
    """The sidebar of a page has the modules of its own room only: those of all rooms would double a short page."""
    config.html_theme_options["collapse_navbar"] = True


def setup(app):
    app.connect("config-inited", unfold_one_room)
    app.connect("autodoc-skip-member", leave_out_plain_fields)
    app.connect("env-updated", find_chapters)
    app.connect("doctree-resolved", name_chapters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
