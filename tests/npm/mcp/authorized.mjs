// A way in for clients that can send no token: node authorized.mjs URL TOKEN. Prints its own URL.
import { createServer, request } from "node:http";

const [url, token] = process.argv.slice(2);
const target = new URL(url);
const server = createServer((incoming, outgoing) => {
  const headers = { ...incoming.headers, authorization: `Bearer ${token}` };
  for (const name of ["host", "origin"]) { // ours becomes the server's, a stranger's stays as it is
    headers[name] = headers[name]?.replace(`:${server.address().port}`, `:${target.port}`);
    if (headers[name] === undefined) delete headers[name];
  }
  const { method, url: path } = incoming;
  const onward = request(target, { method, path, headers }, (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.pipe(outgoing);
  });
  onward.on("error", () => outgoing.destroy());
  outgoing.on("close", () => onward.destroy());
  incoming.pipe(onward);
});
server.listen(0, "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}${target.pathname}`);
});
