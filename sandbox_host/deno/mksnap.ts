// Builds the memory image that every sandbox process starts from.
// Usage: mksnap.ts GUEST_PY IMAGE

import { loadPyodide, type PyodideAPI } from "pyodide";

// Two things that Pyodide has and its type declarations leave out.
type Options = Parameters<typeof loadPyodide>[0] & { _makeSnapshot: boolean };
type Imaging = PyodideAPI & { makeMemorySnapshot(): Uint8Array };

const [guestFile, imageFile] = Deno.args;
const options: Options = { _makeSnapshot: true, env: {} };
const pyodide = (await loadPyodide(options)) as Imaging;

// The guest and what it imports are part of the image, so that no process has to compile them again.
pyodide.FS.writeFile(
  "/lib/python3.14/site-packages/strawberry_guest.py",
  Deno.readTextFileSync(guestFile),
);
pyodide.runPython("import strawberry_guest");
Deno.writeFileSync(imageFile, pyodide.makeMemorySnapshot());
