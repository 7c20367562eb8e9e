// A table or a piece of code that is wider than its box can be scrolled with the keyboard, too.
window.addEventListener("load", () => {
  const watch = new ResizeObserver(changes => changes.forEach(({ target }) => {
    const box = target.closest(".pst-scrollable-table-container, pre");
    box.tabIndex = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight ? 0 : -1;
  }));
  document.querySelectorAll(".pst-scrollable-table-container, .pst-scrollable-table-container > table, .bd-article pre")
    .forEach(element => watch.observe(element));
});
