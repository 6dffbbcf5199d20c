"use strict";
const hint = document.getElementById("hint");
document.querySelectorAll("svg .bar").forEach((bar) => {
  const show = (event) => {
    hint.textContent = bar.dataset.hint;
    hint.style.display = "block";
    const box = hint.getBoundingClientRect();
    hint.style.left = Math.max(4, Math.min(event.clientX + 12, innerWidth - box.width - 4)) + "px";
    hint.style.top = Math.max(4, Math.min(event.clientY + 14, innerHeight - box.height - 4)) + "px";
  };
  bar.addEventListener("pointermove", show);
  bar.addEventListener("pointerdown", show);
  bar.addEventListener("pointerleave", () => { hint.style.display = "none"; });
  bar.querySelector("title").remove();
});
