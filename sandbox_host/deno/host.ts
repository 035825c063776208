// One sandbox process: a Python interpreter with no permissions, driven over stdin and stdout.
// Usage: host.ts IMAGE
//
// Every line is one JSON object. In come {type: "run"} and {type: "answer"}; out go "ready", "output",
// "call" and "done". The guest can forge all that goes out, so nothing here is a gate: the Python program
// at the other end checks every line.

import { loadPyodide } from "pyodide";

interface Run {
  type: "run";
  run: string;
  code: string;
  output: number;
  value: number;
  arguments: number;
}

interface Answer {
  type: "answer";
  id: number;
  body: string;
}

interface Waiter {
  resolve(body: string): void;
}

// What reaches out of the realm, or keeps something for another process. Function stays: Pyodide needs it,
// and V8 compiles no text with it (--disallow-code-generation-from-strings).
const REMOVED = (
  "localStorage sessionStorage caches indexedDB Worker SharedWorker BroadcastChannel fetch WebSocket " +
  "WebSocketStream EventSource WebTransport Deno process global console navigator close alert confirm " +
  "prompt reportError name"
).split(" ");

// Taken before the realm is emptied below.
const { stdin, stdout, exit } = Deno;
const encoder = new TextEncoder();
const parse = JSON.parse;
const stringify = JSON.stringify;
const now = performance.now.bind(performance);

function writeAll(bytes: Uint8Array): void {
  for (let sent = 0; sent < bytes.length;) sent += stdout.writeSync(bytes.subarray(sent));
}

/** Collects what the guest prints, up to the run's cap, and sends it on in pieces. */
class Output {
  #run = "";
  #room = 0;
  #cut = false;
  #eager = 0;
  #held: string[] = [];
  #heldBytes = 0;
  #sentAt = 0;
  #decoder = new TextDecoder();

  begin(run: string, room: number): void {
    this.#run = run;
    this.#room = room;
    this.#cut = false;
    // The first prints go out at once, so that a run that is killed has still shown them; later ones
    // are batched, since a line for every print would cost more than the print.
    this.#eager = 200;
    this.#decoder = new TextDecoder();
  }

  end(): void {
    this.flush();
    this.#run = "";
  }

  write(bytes: Uint8Array): number {
    if (this.#run === "" || this.#cut) return bytes.length;
    const kept = bytes.subarray(0, this.#room);
    this.#room -= kept.length;
    this.#cut = kept.length < bytes.length;
    this.#held.push(this.#decoder.decode(kept, { stream: true }));
    this.#heldBytes += kept.length;
    if (this.#cut || this.#eager-- > 0 || this.#heldBytes > 4096 || now() - this.#sentAt > 50) this.flush();
    return bytes.length;
  }

  flush(): void {
    if (this.#held.length === 0) return;
    const text = this.#held.join("");
    this.#held = [];
    this.#heldBytes = 0;
    this.#sentAt = now();
    writeAll(encoder.encode(stringify({ type: "output", run: this.#run, text, cut: this.#cut }) + "\n"));
  }
}

/** The lines that come in, read in the event loop or, where nothing else can go on meanwhile, without it. */
class Input {
  #decoder = new TextDecoder();
  #buffer = new Uint8Array(64 * 1024);
  #lines: string[] = [];
  #rest: string[] = [];
  #reading = false;

  /** Whether the event loop is reading: what comes then is not for `nextNow`. */
  get reading(): boolean {
    return this.#reading;
  }

  async next(): Promise<string> {
    while (this.#lines.length === 0) {
      this.#reading = true;
      const size = await stdin.read(this.#buffer);
      this.#reading = false;
      this.#take(size);
    }
    return this.#lines.shift()!;
  }

  nextNow(): string {
    while (this.#lines.length === 0) this.#take(stdin.readSync(this.#buffer));
    return this.#lines.shift()!;
  }

  #take(size: number | null): void {
    if (size === null) return exit(0);
    const pieces = this.#decoder.decode(this.#buffer.subarray(0, size), { stream: true }).split("\n");
    while (pieces.length > 1) {
      this.#rest.push(pieces.shift()!);
      this.#lines.push(this.#rest.join(""));
      this.#rest = [];
    }
    this.#rest.push(pieces[0]);
  }
}

const [imageFile] = Deno.args;

const options = {
  jsglobals: {},
  env: {},
  _loadSnapshot: Deno.readFileSync(imageFile),
};
const pyodide = await loadPyodide(options);
const output = new Output();
const input = new Input();
const waiting = new Map<number, Waiter>();
let running = false;
/** Lets the event loop read on, which it does only while it has something to wait for. */
let readOn = () => {};

const sink = { write: (bytes: Uint8Array) => output.write(bytes), isatty: false };
pyodide.setStdout(sink);
pyodide.setStderr(sink);
pyodide.setStdin({ error: true });

/** Write one line of the guest, after all that it printed before. */
function send(line: string): void {
  output.flush();
  writeAll(encoder.encode(line + "\n"));
}

/** Write one call of the guest; the promise holds the body of its answer. */
function call(id: number, line: string): Promise<string> {
  return new Promise((resolve) => {
    waiting.set(id, { resolve });
    send(line);
    readOn();
  });
}

/** Write one call of the guest and return the body of its answer; undefined where the event loop must. */
function callNow(id: number, line: string): string | undefined {
  if (input.reading) return undefined;
  send(line);
  for (;;) {
    const answer = parse(input.nextNow()) as Answer;
    if (answer.id === id) return answer.body;
    settle(answer);
  }
}

function settle(answer: Answer): void {
  const waiter = waiting.get(answer.id);
  waiting.delete(answer.id);
  waiter?.resolve(answer.body);
}

const guest = pyodide.pyimport("strawberry_guest");
const execute = guest.start(send, call, callNow);
guest.destroy();
// V8 compiles each part of the interpreter when it is first used: better now than in the user's first run.
await execute.callPromising("", "print(end='')\n[1 + 1]", 1000, 1000);

// Nothing below needs a permission, and the guest must not find a way to ask for one.
Deno.permissions.revokeSync({ name: "read" });
const realm = globalThis as unknown as Record<string, unknown>;
for (const name of REMOVED) delete realm[name];

async function run(message: Run): Promise<void> {
  running = true;
  output.begin(message.run, message.output);
  waiting.clear();
  try {
    const done: string = await execute.callPromising(
      message.run,
      message.code,
      message.value,
      message.arguments,
    );
    send(done);
  } catch {
    // The interpreter itself has failed (os._exit, a stack overflow): it cannot be used again.
    output.flush();
    exit(70);
  }
  output.end();
  running = false;
  readOn();
}

send(stringify({ type: "ready" }));
for (;;) {
  while (running && waiting.size === 0) await new Promise<void>((resolve) => readOn = resolve);
  const message = parse(await input.next()) as Run | Answer;
  if (message.type === "run") void run(message);
  else settle(message);
}
