"use strict";
(() => {
  const text = (value) => {
    if (value === null || value === undefined) return "–";
    if (typeof value !== "number") return String(value);
    if (Number.isInteger(value)) return value.toLocaleString("en");
    return value.toLocaleString("en", { maximumSignificantDigits: 5 });
  };
  const make = (name, className, content) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    // Content is always text: names from data are never read as markup.
    if (content !== undefined) element.textContent = content;
    return element;
  };

  // Rows of each series in the order of x, so that the value under the pointer is found by halving.
  const seriesOf = (columns) => {
    const found = new Map();
    columns.x.forEach((x, row) => {
      if (typeof x !== "number") return;
      const name = columns.series ? columns.series[row] : "";
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(row);
    });
    for (const rows of found.values()) rows.sort((a, b) => columns.x[a] - columns.x[b]);
    return found;
  };

  const rowAt = (rows, xs, x, step) => {
    let low = 0;
    let high = rows.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (xs[rows[middle]] <= x) low = middle + 1;
      else high = middle;
    }
    if (low === 0) return step ? -1 : rows[0];
    const before = rows[low - 1];
    if (step || low === rows.length) return before;
    return x - xs[before] <= xs[rows[low]] - x ? before : rows[low];
  };

  // A cursor that follows the pointer along x and says what each series is there.
  const follow = (box, view, figure) => {
    const { columns, titles } = figure;
    const series = seriesOf(columns);
    const cursor = box.appendChild(make("div", "cursor"));
    const tip = box.appendChild(make("div", "tip"));
    cursor.hidden = tip.hidden = true;
    const hide = () => { cursor.hidden = tip.hidden = true; };
    const show = (event) => {
      const svg = box.querySelector("svg");
      const frame = svg.getBoundingClientRect();
      const outer = box.getBoundingClientRect();
      const ratio = frame.width / (Number(svg.getAttribute("width")) || frame.width);
      const [left, top] = view.origin();
      const inside = (event.clientX - frame.left) / ratio - left;
      const width = view.signal("width");
      if (inside < 0 || inside > width) return hide();
      const x = view.scale("x").invert(inside);
      const body = document.createElement("table");
      let where = null;
      for (const [name, rows] of series) {
        const row = rowAt(rows, columns.x, x, figure.step);
        if (row < 0 || body.rows.length >= 16) continue;
        if (columns.x2 && x > columns.x2[row]) continue;
        where = figure.step ? x : columns.x[row];
        const line = body.insertRow();
        line.append(make("td", "", name || titles.y), make("td", "n", text(columns.y[row])));
        if (columns.low) line.append(make("td", "n", text(columns.low[row]) + " … " + text(columns.high[row])));
      }
      if (where === null) return hide();
      const place = (view.scale("x")(where) + left) * ratio + frame.left - outer.left;
      cursor.style.left = place + "px";
      cursor.style.top = top * ratio + "px";
      cursor.style.height = view.signal("height") * ratio + "px";
      const head = make("div", "", titles.x + ": " + text(Number(where.toPrecision(5))));
      tip.replaceChildren(head, body);
      cursor.hidden = tip.hidden = false;
      const space = outer.width - place;
      tip.style.left = space > tip.offsetWidth + 16 ? place + 10 + "px" : "auto";
      tip.style.right = space > tip.offsetWidth + 16 ? "auto" : Math.max(0, space + 10) + "px";
      tip.style.top = top * ratio + 4 + "px";
    };
    box.addEventListener("pointermove", show);
    box.addEventListener("pointerleave", hide);
  };

  const save = (name, type, content) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // Spreadsheets run cells that begin like a formula: an apostrophe makes them text.
  const cell = (value) => {
    if (value === null || value === undefined) return "";
    if (typeof value === "number") return String(value);
    const safe = /^[=+\-@\t\r]/.test(value) ? "'" + value : value;
    return /[",\r\n]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
  };

  const asCsv = ({ columns, titles }) => {
    const names = Object.keys(titles);
    const lines = [names.map((name) => cell(titles[name])).join(",")];
    columns.x.forEach((_, row) => lines.push(names.map((name) => cell(columns[name][row])).join(",")));
    return lines.join("\r\n") + "\r\n";
  };

  const asSvg = (box) => {
    const look = getComputedStyle(document.documentElement);
    const copy = box.querySelector("svg").cloneNode(true);
    copy.style.background = look.getPropertyValue("--card");
    const drawn = new XMLSerializer().serializeToString(copy);
    return drawn.replace(/var\((--[a-z0-9]+)\)/g, (_, name) => look.getPropertyValue(name).trim());
  };

  const offer = (box, figure) => {
    const summary = box.closest("figure").querySelector("details.data > summary");
    if (!summary) return;
    const kinds = [["CSV", "text/csv", () => asCsv(figure)], ["SVG", "image/svg+xml", () => asSvg(box)]];
    for (const [kind, type, content] of kinds) {
      const button = make("button", "save", "Save " + kind);
      button.type = "button";
      button.addEventListener("click", (event) => {
        event.preventDefault();
        save(figure.name + "." + kind.toLowerCase(), type, content());
      });
      summary.append(button);
    }
  };

  const draw = async (script) => {
    const figure = JSON.parse(script.textContent);
    const box = document.getElementById(figure.name + "-chart");
    const { columns } = figure;
    const names = Object.keys(columns);
    const values = columns.x.map((_, row) => Object.fromEntries(names.map((name) => [name, columns[name][row]])));
    // ast: expressions are interpreted, never compiled, so the page needs no permission to evaluate text as code.
    const options = { ast: true, actions: false, renderer: "svg", defaultStyle: false, tooltip: { disableDefaultStyle: true },
      logLevel: 1 };
    const { view } = await window.vegaEmbed(box, { ...figure.spec, data: { values } }, options);
    if (figure.followed) follow(box, view, figure);
    offer(box, figure);
  };

  const drawAll = async () => {
    let drawn = 0;
    let failed = 0;
    for (const script of document.querySelectorAll("script.figure-data")) {
      try {
        await draw(script);
        drawn += 1;
      } catch (error) {
        failed += 1;
        console.error(error);
        script.closest("figure").querySelector(".chart").textContent = "This chart could not be drawn: " + error;
      }
    }
    document.documentElement.dataset.drawn = drawn;
    document.documentElement.dataset.failed = failed;
  };
  drawAll();
})();
