// Figures with sliders: shows what attn_lib.interactive has computed for the values chosen.
window.addEventListener("DOMContentLoaded", () => {
  for (const figure of document.querySelectorAll(".play:has(> script)")) {
    const data = JSON.parse(figure.querySelector(":scope > script").textContent);
    const find = selector => [...figure.querySelectorAll(selector)];
    const sliders = find("input[type=range]"), outputs = find("output"), groups = find("g.marks");
    const caption = figure.querySelector("caption"), cells = find(":scope > table td");
    const show = () => {
      const chosen = sliders.map(slider => Number(slider.value));
      const texts = chosen.map((value, i) => data.texts[i][value]);
      const frame = chosen.reduce((place, value, i) => place * data.texts[i].length + value, 0);
      sliders.forEach((slider, i) => slider.setAttribute("aria-valuetext", texts[i]));
      outputs.forEach((output, i) => output.textContent = texts[i]);
      groups.forEach((group, i) => group.innerHTML = data.frames[frame][i].map(mark => data.marks[mark]).join(""));
      cells.forEach((cell, i) => cell.innerHTML = data.numbers[frame][i]);
      caption.innerHTML = "At " + texts.map((text, i) => `${data.labels[i]} = ${text}`).join(", ");
    };
    sliders.forEach(slider => slider.addEventListener("input", show));
    const form = figure.querySelector("form");
    form.addEventListener("submit", event => event.preventDefault());
    form.hidden = false;
    show();
  }
});
