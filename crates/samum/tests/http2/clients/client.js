// The client of Node's http2: many files at once, an upload, cancelled downloads, long downloads. Arguments: the URL of the
// server, and the file of the authority that it trusts, if the server speaks TLS.
const assert = require("assert");
const { createHash } = require("crypto");
const fs = require("fs");
const http2 = require("http2");

const [base, authority] = process.argv.slice(2);
const options = authority ? { ca: fs.readFileSync(authority), servername: "localhost" } : {};
const session = http2.connect(base, options);
session.on("error", fail);
session.on("goaway", (code) => fail(`a GOAWAY with the code ${code}`));

function fail(reason) {
  console.error(reason);
  process.exit(1);
}

/** The status and the bytes of a response. */
function ask(head, body) {
  return new Promise((resolve, reject) => {
    const stream = session.request(head, { endStream: body === undefined });
    const pieces = [];
    let status;
    stream.on("response", (fields) => (status = fields[":status"]));
    stream.on("data", (piece) => pieces.push(piece));
    stream.on("end", () => resolve([status, Buffer.concat(pieces)]));
    stream.on("error", reject);
    if (body !== undefined) stream.end(body);
  });
}

function cancel(path) {
  return new Promise((resolve) => {
    const stream = session.request({ ":path": path });
    stream.once("data", () => stream.close(http2.constants.NGHTTP2_CANCEL));
    stream.on("close", resolve);
    stream.on("error", fail);
  });
}

async function main() {
  const numbers = [...Array(300).keys()];
  for (const [status, body] of await Promise.all(numbers.map((n) => ask({ ":path": `/files/${n}` })))) {
    assert.deepStrictEqual([status, body.length], [200, 30000]);
  }
  const content = Buffer.alloc(3_200_000, "0123456789abcdef");
  const [, said] = await ask({ ":method": "POST", ":path": "/tool/sum" }, content);
  assert.ok(said.toString().startsWith(createHash("md5").update(content).digest("hex")), said.toString());
  await Promise.all(Array.from({ length: 100 }, () => cancel("/files/long")));
  for (const [status, body] of await Promise.all(Array.from({ length: 4 }, () => ask({ ":path": "/files/long" })))) {
    assert.deepStrictEqual([status, body.length], [200, 20_000_000]);
  }
  session.removeAllListeners("goaway");
  session.close();
}

main().catch(fail);
