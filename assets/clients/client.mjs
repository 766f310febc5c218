// A client of Pagedeck for Node.js; `npm install zeromq @msgpack/msgpack`, then:
// node client.mjs CONNECTION_FILE "Once upon a time"
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

// Packages are looked for where the program is run, then beside this file.
const packages = createRequire(join(process.cwd(), "client.mjs"));
const { Dealer } = packages("zeromq");
const { encode, decode } = packages("@msgpack/msgpack");

const [path, prompt, maxTokens = "50"] = process.argv.slice(2);

// A DEALER on the control socket of the engine that a connection file describes.
const found = JSON.parse(readFileSync(path, "utf8"));
const keys = { curveServerKey: found.server_key, curvePublicKey: found.public_key, curveSecretKey: found.secret_key };
const control = new Dealer({ linger: 500, ...(found.server_key ? keys : {}) });
control.connect(found.control);

// One message after another: a socket takes no second one while it sends the first.
let sent = Promise.resolve();
const say = (message) => (sent = sent.then(() => control.send(encode(message))));

// A ping goes out every second; who has not answered for 30 is gone.
let heard = Date.now();
const heartbeat = setInterval(() => {
  say({ type: "ping", id: "ping" });
  if (Date.now() - heard > 30_000) fail("the engine has not answered for 30 s");
}, 1000);

function fail(reason) {
  console.error(reason);
  process.exit(1);
}

const id = randomUUID();
say({ type: "hello", id: "hello", version: 1, client: "client.mjs" });
for await (const [frame] of control) {
  heard = Date.now();
  const message = decode(frame);
  if (message.type === "failed") {
    fail(`${message.code}: ${message.message}`);
  } else if (message.type === "welcome") {
    say({ type: "submit", id, prompt, sampling: { max_tokens: Number(maxTokens), temperature: 0 } });
  } else if (message.type === "tokens") {
    process.stdout.write(message.text ?? "");
  } else if (message.type === "finished") {
    console.log(`\n[${message.samples[0].finish_reason}, ${message.output_tokens} tokens]`);
    clearInterval(heartbeat);
    await say({ type: "bye" });
    control.close();
  }
}
