// What the tests ask of a page that is open: functions of one object, made anew in each page.
({
  // Elements that reach beyond the window and have no box around them that scrolls.
  tooWide() {
    const root = document.documentElement;
    if (root.scrollWidth <= root.clientWidth) return [];
    const scrolls = element => element && element !== document.body
      && (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
    const wide = [...document.querySelectorAll("body *")].filter(
      element => element.getBoundingClientRect().right > root.clientWidth && !scrolls(element.parentElement));
    return [`${root.scrollWidth} pixels`, ...wide.slice(0, 5).map(element => element.outerHTML.slice(0, 120))];
  },

  // Formulas that are still TeX, or wrong.
  notRendered() {
    const rendered = document.querySelectorAll(".math:has(mjx-container)").length;
    const missing = [...document.querySelectorAll(".math:not(:has(mjx-container)), mjx-merror")];
    return { rendered, missing: missing.map(element => element.outerHTML.slice(0, 200)) };
  },

  // Text with too little contrast (WCAG 2.1, 1.4.3) to what is behind it, each pair of colours once.
  lowContrast() {
    const parse = colour => {
      const [red, green, blue, alpha = 1] = colour.match(/[\d.]+/g).map(Number);
      return [red, green, blue, alpha];
    };
    const over = (top, below) => below.map((value, i) => top[i] * top[3] + value * (1 - top[3]));
    const behind = new Map([[null, [255, 255, 255]]]);
    const background = element => {
      if (!behind.has(element)) {
        const own = parse(getComputedStyle(element).backgroundColor);
        behind.set(element, over(own, background(element.parentElement)));
      }
      return behind.get(element);
    };
    const luminance = colour => colour
      .map(value => value / 255)
      .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
      .reduce((sum, value, i) => sum + [0.2126, 0.7152, 0.0722][i] * value, 0);
    const found = new Map();
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const element = texts.currentNode.parentElement;
      if (!texts.currentNode.data.trim() || element.closest("script, style, svg, mjx-container")) continue;
      if (!element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
      const style = getComputedStyle(element);
      const colours = [over(parse(style.color), background(element)), background(element)];
      const [dark, light] = colours.map(luminance).sort((a, b) => a - b);
      const size = parseFloat(style.fontSize);
      const needed = size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
      const ratio = (light + 0.05) / (dark + 0.05);
      if (ratio < needed) {
        const [text, paper] = colours.map(colour => `rgb(${colour.map(Math.round)})`);
        found.set(`${text} on ${paper}`, `${ratio.toFixed(2)} < ${needed}: ${element.outerHTML.slice(0, 120)}`);
      }
    }
    return Object.fromEntries(found);
  },

  // Whether the element with the focus is seen to have it.
  focus() {
    const element = document.activeElement;
    const style = getComputedStyle(element);
    const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
    const visible = outlined || style.boxShadow !== "none";
    return { visible, where: element.outerHTML.slice(0, 120) };
  },
})
