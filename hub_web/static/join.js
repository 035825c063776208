// The page for whoever sets up a device: its buttons copy the line before them.
"use strict";
for (const button of document.querySelectorAll(".line button")) {
  button.addEventListener("click", async () => {
    const line = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(line.textContent);
      button.textContent = button.dataset.copied;
    } catch {
      // A page without TLS may not write there: the line is marked, so that it can be copied by hand.
      getSelection().selectAllChildren(line);
    }
  });
}
const share = document.getElementById("share");
if (share && navigator.share) {
  share.hidden = false;
  share.addEventListener("click", () => navigator.share({ url: location.href }).catch(() => null));
}
