// The TypeScript SDK v1 as an MCP client: node sdk_v1.mjs COMMAND ARGUMENTS...
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { answerCalls } from "./answers.mjs";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "sdk-v1", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
await answerCalls(client);
