// go-ent's guard inside OpenCode: every tool call is put to go-ent before it runs.
//
// OpenCode asks for a shell command only if its parser finds one, and judges paths as they are
// written. So go-ent decides first, by the worker's rules or by asking its owner. A call that
// go-ent does not allow, or cannot be asked about, does not run.

export const GoentGuard = async ({ client, directory, worktree }, options) => {
  const owners = new Map();

  // The session that a subagent works for, however deep it is nested.
  const ownerOf = async (session) => {
    if (!owners.has(session)) {
      const found = await client.session.get({ path: { id: session } });
      const parent = found.data?.parentID;
      owners.set(session, parent ? await ownerOf(parent) : session);
    }
    return owners.get(session);
  };

  const post = async (what, body) => {
    const reply = await fetch(`${options.url}/${what}`, {
      method: "POST",
      headers: { authorization: `Bearer ${options.token}`, "content-type": "application/json" },
      body: JSON.stringify(body),
      timeout: false, // a person may be asked
    });
    if (!reply.ok) throw new Error(`go-ent did not allow this call: ${await reply.text()}`);
    return reply.json();
  };

  await post("hello", { directory });
  return {
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      const owner = await ownerOf(sessionID);
      const place = { directory, worktree };
      const resumes = tool === "task" && args.task_id ? await ownerOf(String(args.task_id)) : "";
      const about = { owner, session: sessionID, call: callID, tool, args, resumes };
      const verdict = await post("call", { ...about, ...place });
      if (verdict.allow !== true) throw new Error(verdict.message);
    },
    // A command that its sandbox refused something says so in its own words; ours name the remedy.
    "tool.execute.after": async ({ tool, sessionID }, output) => {
      if (tool !== "bash" || !output?.metadata?.exit || typeof output.output !== "string") return;
      const body = { owner: await ownerOf(sessionID), output: output.output.slice(-4000) };
      const { hint } = await post("hint", body);
      if (hint) output.output += `\n${hint}`;
    },
    // What OpenCode knows of us and of its own server is not for the commands that it runs. Each is
    // confined to the folder of its worker; the shell that OpenCode starts reads how from a variable.
    "shell.env": async ({ sessionID }, output) => {
      if (sessionID) {
        Object.assign(output.env, await post("shell", { owner: await ownerOf(sessionID) }));
      }
      output.env.OPENCODE_CONFIG_CONTENT = "";
      output.env.OPENCODE_SERVER_PASSWORD = "";
    },
  };
};
