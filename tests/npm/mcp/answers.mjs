// Reads calls of tools, a line of JSON each, and writes what the client makes of the answers.
import { createInterface } from "node:readline";

export async function answerCalls(client) {
  const { tools } = await client.listTools(); // a client checks results by the schemas it has seen
  say({ tools: tools.map((tool) => tool.name) });
  for await (const line of createInterface({ input: process.stdin })) {
    const { name, arguments: given } = JSON.parse(line);
    try {
      const result = await client.callTool({ name, arguments: given });
      const error = result.isError ? result.content.map((part) => part.text).join("\n") : null;
      say({ structured: result.structuredContent ?? null, error });
    } catch (thrown) {
      say({ thrown: String(thrown) });
    }
  }
  await client.close();
}

function say(message) {
  process.stdout.write(JSON.stringify(message) + "\n");
}
