"use strict";
const tip = document.getElementById("tip");
document.addEventListener("pointermove", (event) => {
  const text = event.target.getAttribute ? event.target.getAttribute("data-tip") : null;
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 4)) + "px";
  tip.style.top = Math.max(4, event.clientY - box.height - 10) + "px";
});
document.querySelectorAll("table.sortable").forEach((table) => {
  table.querySelectorAll("th").forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = (row) => row.cells[column].getAttribute("data-value") ?? row.cells[column].textContent;
      const body = table.tBodies[0];
      const rows = Array.from(body.rows);
      rows.sort((a, b) => {
        const x = key(a), y = key(b), p = parseFloat(x), q = parseFloat(y);
        const order = Number.isNaN(p) || Number.isNaN(q) ? x.localeCompare(y) : p - q;
        return up ? order : -order;
      });
      rows.forEach((row) => body.appendChild(row));
    });
  });
});
const toggle = document.getElementById("theme");
toggle.hidden = false;
toggle.addEventListener("click", () => {
  const root = document.documentElement;
  const now = root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
});
