// A way in for clients that can send no token: node authorized.mjs URL TOKEN. Prints its own URL.
import { createServer, request } from "node:http";

const [url, token] = process.argv.slice(2);
const target = new URL(url);
const server = createServer((incoming, outgoing) => {
  const own = incoming.headers.host === `127.0.0.1:${server.address().port}`;
  const headers = { ...incoming.headers, authorization: `Bearer ${token}` };
  if (own) headers.host = target.host; // a stranger's name is passed on as it is
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
