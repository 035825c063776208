// Shows web push messages, also while no page of the hub is open. It keeps no page and no data.
"use strict";
const scope = self.registration.scope.replace(/\/$/, "");

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  const { title, body, path, tag } = event.data.json();
  event.waitUntil(self.registration.showNotification(title, { body, tag, data: path, icon: `${scope}/icon-192.png` }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  const url = scope + event.notification.data;
  event.waitUntil((async () => {
    const windows = await self.clients.matchAll({ type: "window" });
    for (const each of windows) {
      if (each.url === url) return each.focus();
    }
    return windows.length ? (await windows[0].focus()).navigate(url) : self.clients.openWindow(url);
  })());
});
