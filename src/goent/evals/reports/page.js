"use strict";
(() => {
  const list = document.getElementById("cases");
  const cases = [...list.children];
  const find = document.getElementById("find");
  const state = document.getElementById("state");
  const target = document.getElementById("target");
  const count = document.getElementById("count");
  const none = document.getElementById("none");
  document.documentElement.classList.add("js");

  function fits(one, words) {
    const is = one.dataset;
    const wanted = state.value;
    return (!words || is.name.includes(words))
      && (!wanted || (wanted === "undone" ? is.state !== "passed" : is.state === wanted))
      && (!target || !target.value || is.target === target.value);
  }

  function filter() {
    const words = find.value.trim().toLowerCase();
    let shown = 0;
    for (const one of cases) {
      one.hidden = !fits(one, words);
      if (!one.hidden) shown += 1;
    }
    count.textContent = shown === cases.length ? "" : `${shown} of ${cases.length}`;
    none.hidden = shown > 0;
  }

  const words = new Set(["name", "target"]);
  let sorted = "";
  let down = false;
  function sort(button) {
    const key = button.dataset.sort;
    down = sorted === key ? !down : false;
    sorted = key;
    const value = (one) => {
      const told = one.dataset[key];
      return words.has(key) ? told : told === "" ? Infinity : Number(told);
    };
    const order = (a, b) => (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0);
    cases.sort((a, b) => (down ? order(b, a) : order(a, b)));
    list.append(...cases);
    for (const each of document.querySelectorAll("[data-sort]")) {
      each.removeAttribute("aria-pressed");
      each.classList.remove("up", "down");
    }
    button.setAttribute("aria-pressed", "true");
    button.classList.add(down ? "down" : "up");
  }

  function unfold() {
    const one = document.getElementById(location.hash.slice(1));
    if (one && one.tagName === "DETAILS") {
      one.hidden = false;
      one.open = true;
      one.scrollIntoView({ block: "start" });
    }
  }

  find.form.addEventListener("submit", (event) => event.preventDefault());
  for (const each of [find, state, target]) if (each) each.addEventListener("input", filter);
  for (const each of document.querySelectorAll("[data-sort]")) {
    each.addEventListener("click", () => sort(each));
  }
  addEventListener("hashchange", unfold);
  unfold();
})();
