// An origin of node:http. It announces its address as samum does.
"use strict";
const http = require("node:http");

function echo(request, response) {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    const fields = new Map();
    for (let at = 0; at < request.rawHeaders.length; at += 2) {
      const name = request.rawHeaders[at].toLowerCase();
      const before = fields.has(name) ? fields.get(name) + ", " : "";
      fields.set(name, before + request.rawHeaders[at + 1]);
    }
    const lines = [...fields].map(([name, value]) => `${name}: ${value}\n`).sort();
    const head = `${request.method} ${request.url}\n${lines.join("")}\n`;
    response.end(Buffer.concat([Buffer.from(head), ...pieces]));
  });
}

const server = http.createServer((request, response) => {
  switch (request.url) {
    case "/fixed":
      response.setHeader("Set-Cookie", ["a=1", "b=2"]);
      response.setHeader("Content-Length", "5");
      response.setHeader("Server", "node");
      response.end("fixed");
      break;
    case "/chunked":
      ["one", "two", "three"].forEach((piece) => response.write(piece));
      response.end();
      break;
    case "/trailers":
      response.setHeader("Trailer", "X-Sum");
      response.write("body");
      response.addTrailers({ "X-Sum": "1" });
      response.end();
      break;
    case "/empty":
      response.writeHead(204).end();
      break;
    case "/unchanged":
      response.writeHead(304, { ETag: '"x"' }).end();
      break;
    case "/hints":
      response.writeEarlyHints({ link: "</a.css>; rel=preload" });
      response.end("hinted");
      break;
    case "/missing":
      response.writeHead(404, { "Content-Length": "4" }).end("none");
      break;
    default:
      echo(request, response);
  }
});
server.listen(0, "127.0.0.1", () => {
  process.stderr.write(`listening on http://127.0.0.1:${server.address().port}/\n`);
});
