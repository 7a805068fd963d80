// The TypeScript SDK v2 as an MCP client: node sdk_v2.mjs MODE COMMAND ARGUMENTS...
import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { answerCalls } from "./answers.mjs";

const [mode, command, ...args] = process.argv.slice(2);
const client = new Client({ name: "sdk-v2", version: "1" }, { versionNegotiation: { mode } });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
await answerCalls(client);
