// WebSockets: `serve` echoes what comes, and tells its port; `ask PORT` sends messages of many sizes, and wants them back.
"use strict";

const crypto = require("crypto");
const { once } = require("events");
const { WebSocket, WebSocketServer } = require("ws");

const SIZES = [0, 1, 125, 126, 65_535, 65_536, 1_000_000];
const CLIENTS = 10;

function serve() {
  const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: true });
  server.on("listening", () => console.log(server.address().port));
  server.on("connection", (socket) => {
    socket.on("message", (message, binary) => socket.send(message, { binary }));
  });
}

async function ask(port, number) {
  const options = { perMessageDeflate: number % 2 === 1, handshakeTimeout: 30_000 };
  const socket = new WebSocket(`ws://127.0.0.1:${port}/echo?${number}`, options);
  await once(socket, "open");
  for (let turn = 0; turn < 10; turn += 1) {
    // Each client begins with another size, so all sizes are sent with and without compression.
    const message = crypto.randomBytes(SIZES[(number + turn) % SIZES.length]);
    const answer = once(socket, "message");
    const pong = once(socket, "pong");
    socket.send(message);
    socket.ping("still there?");
    const [data, binary] = await answer;
    if (!binary || !message.equals(data)) throw new Error(`client ${number}: ${message.length} bytes, not ${data.length}`);
    await pong;
  }
  const closed = once(socket, "close");
  socket.close(1000, "done");
  const [code, reason] = await closed;
  if (code !== 1000 || reason.toString() !== "done") throw new Error(`client ${number}: closed by ${code} ${reason}`);
}

if (process.argv[2] === "serve") {
  serve();
} else {
  const port = Number(process.argv[3]);
  const clients = Array.from({ length: CLIENTS }, (_, number) => ask(port, number));
  Promise.all(clients).then(() => process.exit(0), (error) => { console.error(error); process.exit(1); });
  setTimeout(() => { console.error("no answer in time"); process.exit(1); }, 60_000);
}
