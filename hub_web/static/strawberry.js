// What a page needs beside NiceGUI: logging out, and a look at the session when the connection is lost.
"use strict";
(() => {
  const { base } = document.currentScript.dataset;
  let identity = document.currentScript.dataset.hub;

  let leaving = false;

  // The hub ends the socket with its session: to connect again would load the page that is being left.
  function leave(yes) {
    leaving = yes;
    window.socket.io.reconnection(!yes);
  }

  // Another program may have taken the hub's port, and whatever is asked of it would bring it the session's
  // cookie. So the hub signs a challenge first, as docs/protocol.md says of joining. Where a proxy is in front,
  // or the browser has no cryptography for this page, it is taken at its word.
  async function isHub() {
    const [hub, key] = identity.split(" ");
    if (!key || !isSecureContext) return true;
    const decoded = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
    const name = { name: "Ed25519" };
    const known = await crypto.subtle.importKey("raw", decoded(key), name, false, ["verify"]).catch(() => null);
    if (!known) return true;
    const challenge = [...crypto.getRandomValues(new Uint8Array(24))].map((each) => each.toString(16)).join("0");
    const signed = new TextEncoder().encode(["strawberry-hub-1", hub, challenge, location.host].join("\0"));
    const card = `${base}/.well-known/strawberry?challenge=${challenge}`;
    try {
      const answer = await fetch(card, { credentials: "omit", cache: "no-store" });
      return await crypto.subtle.verify(name, known, decoded((await answer.json()).proof), signed);
    } catch {
      return false;
    }
  }

  function connectToHubOnly() {
    const manager = window.socket.io;
    const open = manager.open;
    manager.open = (opened) => {
      isHub().then((yes) => (yes ? open.call(manager, opened) : opened?.(new Error("this is not the hub"))));
      return manager;
    };
  }

  async function look() {
    if (leaving || !(await isHub())) return;
    // A session that has ended brings the login; a hub that was restarted, a reload.
    try {
      const answer = await fetch(`${base}/_strawberry-session`, { cache: "no-store" });
      if (answer.status === 401) location.reload();
    } catch {
      // The hub is away; the socket goes on trying.
    }
  }

  function attach() {
    if (!window.socket) return setTimeout(attach, 50);
    connectToHubOnly();
    window.socket.on("disconnect", look);
    window.socket.on("connect_error", look);
    window.socket.on("disconnect", () => document.body.classList.toggle("sb-away", !leaving));
    window.socket.on("connect", () => document.body.classList.remove("sb-away"));
    keepEnd();
    takeDrafts();
  }

  // What is written and not sent stays in this tab while its page is loaded again; a question that is being
  // changed is no new message.
  const boxes = () => [...document.querySelectorAll(":not(:has(> .sb-editing > *)) > .sb-draft :is(input, textarea)")];
  const drafts = () => JSON.parse(sessionStorage.getItem("drafts") ?? "{}");
  addEventListener("pagehide", () => {
    const said = boxes().map((box) => box.value);
    if (leaving || !said.length) return;
    sessionStorage.setItem("drafts", JSON.stringify({ ...drafts(), [location.pathname]: said }));
  });

  function takeDrafts() {
    const said = drafts()[location.pathname] ?? [];
    for (const [number, box] of boxes().entries()) {
      if (box.value || !said[number]) continue;
      box.value = said[number];
      box.dispatchEvent(new Event("input", { bubbles: true }));
    }
  }

  // Where the end of a conversation is in sight, it stays in sight while the answer grows.
  const near = () => innerHeight + scrollY > document.documentElement.scrollHeight - 160;
  let wasNear = true;
  addEventListener("scroll", () => (wasNear = near()), { passive: true });

  function keepEnd() {
    const thread = document.querySelector(".sb-thread");
    if (!thread) return;
    new MutationObserver(() => wasNear && strawberry.toEnd()).observe(thread, {
      childList: true,
      subtree: true,
      characterData: true,
    });
  }

  // A handler of the page waits for what a function returns: a hub that is away, a proxy that answers in its
  // place and a file that cannot be read are an answer as well.
  const answering = (work) => (...given) =>
    work(...given).catch(() => {
      leave(false);
      return { code: "unreachable" };
    });

  // Behind a certificate that a browser does not trust it takes no service worker, although its person has
  // accepted the warning: null where the hub answers, and the browser refuses all the same.
  async function registered() {
    const path = `${base}/sw.js`;
    try {
      return await navigator.serviceWorker.register(path, { scope: `${base}/` });
    } catch {
      await fetch(path, { cache: "no-store" });
      return null;
    }
  }

  addEventListener("click", async ({ target }) => {
    const button = target.closest?.(".sb-copy");
    if (!button) return;
    await navigator.clipboard.writeText(button.nextElementSibling.innerText);
    button.firstChild.textContent = "check";
    setTimeout(() => (button.firstChild.textContent = "content_copy"), 2_000);
  });
  if (!window.speechSynthesis) document.documentElement.classList.add("sb-mute");

  window.strawberry = {
    // Reads an answer aloud without its code by the browser's own voice; asked again while it speaks, it stops.
    speak(answer) {
      const { speaking } = speechSynthesis;
      speechSynthesis.cancel();
      if (speaking) return;
      const words = answer.cloneNode(true);
      for (const each of words.querySelectorAll(".sb-block")) each.remove();
      const said = new SpeechSynthesisUtterance(words.textContent.trim());
      said.lang = document.documentElement.lang;
      speechSynthesis.speak(said);
    },
    // Reads a chosen file for a message: a picture smaller, and so without the place where it was taken.
    async attachment(id, number, most) {
      const file = document.getElementById(id).files[number];
      if (!file) return null;
      const name = file.name.slice(-120) || "file";
      if (file.type.startsWith("image/")) {
        const image = await createImageBitmap(file).catch(() => null);
        if (!image) return { name, code: "unreadable" };
        const scale = Math.min(1, 1280 / Math.max(image.width, image.height));
        const [width, height] = [image.width, image.height].map((each) => Math.max(1, Math.round(each * scale)));
        const canvas = Object.assign(document.createElement("canvas"), { width, height });
        const context = canvas.getContext("2d");
        context.fillStyle = "#fff";
        context.fillRect(0, 0, width, height);
        context.drawImage(image, 0, 0, width, height);
        // A message of the page's socket has 1 MiB.
        const made = [0.8, 0.5, 0.2].map((quality) => canvas.toDataURL("image/jpeg", quality).split(",")[1]);
        return { name, media_type: "image/jpeg", data: made.find((each) => each.length < 700_000) ?? made[2] };
      }
      if (file.size > 4 * most) return { name, code: "long" };
      try {
        const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
        return text.includes("\0") ? { name, code: "unreadable" } : text.length > most ? { name, code: "long" } : { name, text };
      } catch {
        return { name, code: "unreadable" };
      }
    },
    // The hub of a backup has a key of its own, and knows no session of this one.
    expectAnotherHub() {
      identity = " ";
    },

    toEnd() {
      wasNear = true;
      requestAnimationFrame(() => scrollTo(0, document.documentElement.scrollHeight));
    },
    // It is made at the same time.
    focus(id, tries = 40) {
      const found = document.getElementById(id);
      if (!found && tries) return setTimeout(() => strawberry.focus(id, tries - 1), 50);
      found?.focus({ preventScroll: true });
      found?.scrollIntoView({ block: "nearest" });
    },
    // What gives the browser another cookie is asked by the browser itself; returns why it was refused.
    ask: answering(async (method, path, body, next) => {
      leave(true);
      const answer = await fetch(`${base}${path}`, {
        method,
        headers: body ? { "content-type": "application/json" } : {},
        body: body ? JSON.stringify(body) : undefined,
      });
      if (answer.ok) return location.assign(`${base}${next}`);
      leave(false);
      return await answer.json();
    }),
    // Saves what a route answers as a file; returns null, or the error.
    save: answering(async (path, body) => {
      const answer = await fetch(base + path, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      if (!answer.ok) return await answer.json();
      const link = document.createElement("a");
      link.href = URL.createObjectURL(await answer.blob());
      link.download = (answer.headers.get("content-disposition") ?? "").match(/filename="(.+?)"/)?.[1] ?? "file";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
      return null;
    }),
    // Sends the chosen file of an input in pieces, each with its place, to a path or, where that ends with a
    // slash, to the file's name below it; returns null, or the error.
    send: answering(async (path, input, shown) => {
      const file = document.getElementById(input).files[0];
      if (!file) return { code: "no_file" };
      if (path.endsWith("/")) path += encodeURIComponent(file.name);
      for (let at = 0; at < file.size || at === 0; at += 512 * 1024) {
        const answer = await fetch(`${base}${path}?at=${at}`, {
          method: "PUT",
          headers: { "content-type": "application/octet-stream" },
          body: file.slice(at, at + 512 * 1024),
        });
        if (!answer.ok) return await answer.json();
        const share = Math.min(1, (at + 512 * 1024) / file.size);
        document.getElementById(shown).textContent = `${Math.round(share * 100)} %`;
      }
      return null;
    }),
    zone: () => ({ zone: Intl.DateTimeFormat().resolvedOptions().timeZone }),
    // The time zone of this device and where it is, to a kilometre; only the zone if it does not tell.
    place: () =>
      new Promise((resolve) => {
        const { zone } = globalThis.strawberry.zone();
        const fail = () => resolve({ zone });
        const round = (degrees) => Math.round(degrees * 100) / 100;
        const take = ({ coords }) =>
          resolve({ zone, latitude: round(coords.latitude), longitude: round(coords.longitude) });
        // A person may leave the browser's question open.
        setTimeout(fail, 45_000);
        if (isSecureContext && navigator.geolocation) {
          navigator.geolocation.getCurrentPosition(take, fail, { timeout: 20_000 });
        } else fail();
      }),
    // Why this browser shows no notifications of the hub, or under which id it is told of them.
    async told() {
      if (!isSecureContext) return { problem: "insecure" };
      if (!("serviceWorker" in navigator) || !("PushManager" in window)) return { problem: "unsupported" };
      if (Notification.permission === "denied") return { problem: "denied" };
      const registration = await registered().catch(() => undefined);
      if (registration === null) return { problem: "untrusted" };
      const made = await registration?.pushManager.getSubscription();
      return { id: (made && localStorage.getItem("push")) || "" };
    },
    // Asks the person, and has notifications sent to this browser; returns its id, or the error.
    tell: answering(async () => {
      if ((await Notification.requestPermission()) !== "granted") return { code: "denied" };
      const registration = await registered();
      if (!registration) return { code: "untrusted" };
      await navigator.serviceWorker.ready;
      const { key } = await (await fetch(`${base}/api/push`)).json();
      let made;
      try {
        made = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key });
      } catch {
        return { code: "no_service" };
      }
      const { endpoint, keys } = made.toJSON();
      const name = /iPhone|iPad|Android|Windows|Macintosh|Linux/.exec(navigator.userAgent)?.[0] ?? "";
      const body = { endpoint, keys, name, language: document.documentElement.lang, origin: location.origin };
      const answer = await fetch(`${base}/api/push`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      const told = await answer.json();
      if (answer.ok) localStorage.setItem("push", told.id);
      else await made.unsubscribe();
      return told;
    }),
    // Ends the subscription of this browser, where it is the one with this id.
    async untell(id) {
      if (localStorage.getItem("push") !== id) return;
      localStorage.removeItem("push");
      const registration = await navigator.serviceWorker.getRegistration(`${base}/`);
      await (await registration?.pushManager.getSubscription())?.unsubscribe();
    },
    async logOut() {
      leave(true);
      sessionStorage.removeItem("drafts");
      const told = localStorage.getItem("push");
      if (told) await this.untell(told).catch(() => null);
      await fetch(`${base}/api/session`, { method: "DELETE" }).catch(() => null);
      location.assign(`${base}/login`);
    },
  };
  addEventListener("load", attach);
})();
