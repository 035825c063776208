// Login, and the choice of a password with a one-time code.
"use strict";
(() => {
  const { base, words } = document.currentScript.dataset;
  const said = JSON.parse(words);
  // What a person had begun to write is not for the next one.
  sessionStorage.clear();
  const form = document.querySelector("form");
  const error = document.getElementById("error");
  const button = form.querySelector("button");

  function show(message, hint = "") {
    error.textContent = [said[message] ?? message, hint].filter(Boolean).join(" ");
    error.hidden = false;
  }

  // The code is in the fragment, which browsers never send; it is taken out of the address.
  const code = form.elements.namedItem("code");
  function takeCode() {
    const given = decodeURIComponent(location.hash.slice(1)).replace(/^code=/, "");
    if (!code || !given) return;
    code.value = given;
    history.replaceState(null, "", location.pathname + location.search);
  }
  takeCode();
  // A link that is pasted here does not load the page again.
  addEventListener("hashchange", takeCode);
  if (button) [...form.elements].find((field) => !field.value && field.name)?.focus();

  function wanted() {
    const next = new URLSearchParams(location.search).get("next") ?? "/";
    const own = new URL(base + (next.startsWith("/") ? next : "/"), location.origin);
    // "//other" and "/\other" are other origins.
    return own.origin === location.origin && /^\/(?![/\\])/.test(next) ? own.href : `${base}/`;
  }

  // The browser sends no session along with a link on another site, but it does with what this page asks.
  if (new URLSearchParams(location.search).has("next"))
    fetch(location.pathname, { redirect: "manual" })
      .then((answer) => answer.type === "opaqueredirect" && location.replace(wanted()))
      .catch(() => null);

  // An admin who begins with a home that has no model chooses one first.
  async function firstSteps(answer) {
    if (!code || (await answer.json()).user?.role !== "admin") return null;
    const models = await fetch(`${base}/api/models`);
    return models.ok && !(await models.json()).models.length ? `${base}/first-steps` : null;
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    error.hidden = true;
    const { again, ...body } = Object.fromEntries(new FormData(form));
    if (again !== undefined && again !== body.password) return show(said.differ);
    for (const name of Object.keys(body)) if (!body[name].trim()) delete body[name];
    if (code) body.language = document.documentElement.lang;
    button.disabled = true;
    try {
      const answer = await fetch(form.dataset.route, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      if (answer.ok) return location.replace((await firstSteps(answer)) ?? wanted());
      const problem = await answer.json();
      show(problem.detail, problem.detail in said ? "" : problem.hint);
    } catch {
      show(said.unreachable);
    }
    button.disabled = false;
  });
})();
