// Says in words that a table is wider than the page and scrolls. The theme puts every table into a box of its own, some time
// after the page has loaded.
(() => {
  const said = new Map();
  const widths = new ResizeObserver((entries) => {
    for (const { target } of entries) {
      const box = target.closest(".md-typeset__scrollwrap");
      said.get(box).hidden = box.scrollWidth <= box.clientWidth;
    }
  });
  const watch = () => {
    for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
      if (said.has(box)) continue;
      const hint = document.createElement("p");
      hint.className = "table-hint";
      hint.textContent = "Scroll sideways for more columns →";
      hint.ariaHidden = "true";
      hint.hidden = true;
      said.set(box, hint);
      box.before(hint);
      widths.observe(box);
      widths.observe(box.querySelector("table"));
    }
  };
  new MutationObserver(watch).observe(document.querySelector(".md-content"), { childList: true, subtree: true });
  watch();
})();
