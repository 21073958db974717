// An agent on the TypeScript SDK of the Agent Client Protocol. The first word of a prompt says what it does:
//
// ask   asks for permission to run `make` and says `allowed OPTION`, `rejected OPTION` or `cancelled`
// edit  the same for a change of `notes.txt` in the session's directory
// wait  says `waiting` and does nothing until it is cancelled
//
// Anything else is said back, a word a chunk.

import path from "node:path";
import { Readable, Writable } from "node:stream";

import { agent, methods, ndJsonStream, PROTOCOL_VERSION, RequestError } from "@agentclientprotocol/sdk";

const OPTIONS = [
  { optionId: "yes", name: "Yes", kind: "allow_once" },
  { optionId: "always", name: "Yes, always", kind: "allow_always" },
  { optionId: "no", name: "No", kind: "reject_once" },
];

const sessions = new Map();
let calls = 0;

const update = (client, sessionId, update) => client.notify(methods.client.session.update, { sessionId, update });

const say = (client, sessionId, text) =>
  update(client, sessionId, { sessionUpdate: "agent_message_chunk", content: { type: "text", text } });

async function ask(client, sessionId, details) {
  const toolCall = { toolCallId: `call-${++calls}`, status: "pending", ...details };
  await update(client, sessionId, { sessionUpdate: "tool_call", ...toolCall });
  const { outcome } = await client.request(methods.client.session.requestPermission, {
    sessionId,
    toolCall,
    options: OPTIONS,
  });
  const allowed = outcome.outcome === "selected" && outcome.optionId !== "no";
  const said = outcome.outcome === "selected" ? `${allowed ? "allowed" : "rejected"} ${outcome.optionId}` : "cancelled";
  const status = allowed ? "completed" : "failed";
  await update(client, sessionId, { sessionUpdate: "tool_call_update", toolCallId: toolCall.toolCallId, status });
  await say(client, sessionId, said);
}

async function prompt({ client, params: { sessionId, prompt } }) {
  const session = sessions.get(sessionId);
  if (!session) throw RequestError.invalidParams({ sessionId });
  const turn = (session.turn = new AbortController());
  const words = prompt.map((block) => block.text ?? "").join("").split(/\s+/).filter(Boolean);
  switch (words[0]) {
    case "ask":
      await ask(client, sessionId, { title: "Run make", kind: "execute", rawInput: { command: "make" } });
      break;
    case "edit": {
      const file = path.join(session.cwd, "notes.txt");
      const diff = { type: "diff", path: file, oldText: "old\n", newText: "new\n" };
      await ask(client, sessionId, { title: "Edit notes.txt", kind: "edit", content: [diff] });
      break;
    }
    case "wait": {
      const cancelled = new Promise((resolve) => turn.signal.addEventListener("abort", resolve));
      await say(client, sessionId, "waiting");
      await cancelled;
      break;
    }
    default:
      for (const word of words) await say(client, sessionId, `${word} `);
  }
  return { stopReason: turn.signal.aborted ? "cancelled" : "end_turn" };
}

const connection = agent({ name: "node-peer" })
  .onRequest(methods.agent.initialize, () => ({
    protocolVersion: PROTOCOL_VERSION,
    agentCapabilities: {},
    agentInfo: { name: "node-peer", title: "Node peer", version: "1.0.0" },
    authMethods: [],
  }))
  .onRequest(methods.agent.session.new, ({ params }) => {
    const sessionId = `node-${sessions.size + 1}`;
    sessions.set(sessionId, { cwd: params.cwd });
    return { sessionId };
  })
  .onRequest(methods.agent.session.prompt, prompt)
  .onNotification(methods.agent.session.cancel, ({ params }) => sessions.get(params.sessionId)?.turn?.abort())
  .connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));

await connection.closed;
