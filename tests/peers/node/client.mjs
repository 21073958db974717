// A client on the TypeScript SDK of the Agent Client Protocol.
//
//   client TRANSPORT TARGET SCENARIO [PROMPT]
//
// The same command line, scenarios and output as `tests/peers/python/client.py`, where they are described.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";

import { client, methods, ndJsonStream, PROTOCOL_VERSION } from "@agentclientprotocol/sdk";
import { createHttpStream } from "@agentclientprotocol/sdk/experimental/http-client";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";
import { WebSocket } from "ws";

const SCENARIOS = ["new", "prompt", "permission", "deny", "cancel", "load", "list"];
const PATIENCE_MS = 25_000;

class Cannot extends Error {}

const tell = (saw, fields) => process.stdout.write(`${JSON.stringify({ saw, ...fields })}\n`);

const wrong = (sentence) => {
  throw new Error(sentence);
};

class Seat {
  constructor(deny) {
    this.kinds = deny ? ["reject_once", "reject_always"] : ["allow_once", "allow_always"];
    this.updates = [];
    this.asked = 0;
    this.cancelled = false;
    this.first = new Promise((resolve) => (this.heard = resolve));
  }

  app() {
    return client({ name: "node-client" })
      .onNotification(methods.client.session.update, ({ params: { sessionId, update } }) => {
        tell("update", { session: sessionId, update });
        this.updates.push(update);
        this.heard();
      })
      .onRequest(methods.client.session.requestPermission, ({ params }) => {
        this.asked += 1;
        this.heard();
        const wanted = this.kinds.flatMap((kind) => params.options.filter((option) => option.kind === kind));
        const outcome =
          this.cancelled || wanted.length === 0
            ? { outcome: "cancelled" }
            : { outcome: "selected", optionId: wanted[0].optionId };
        tell("permission", { request: params, answer: outcome });
        return { outcome };
      });
  }

  words() {
    const said = this.updates.filter((update) => update.sessionUpdate === "agent_message_chunk");
    return said.map((update) => update.content.text ?? "").join("");
  }
}

function open(transport, target) {
  const token = process.env.INTERCOM_TOKEN;
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  switch (transport) {
    case "stdio": {
      const child = spawn("/bin/sh", ["-c", `exec ${target}`], { stdio: ["pipe", "pipe", "inherit"] });
      const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
      return { stream, end: async () => child.exitCode ?? (child.stdin.end(), await once(child, "exit")) };
    }
    case "http":
      return { stream: createHttpStream(target, { headers }), end: () => {} };
    case "ws":
      return { stream: createWebSocketStream(target, { headers, WebSocket }), end: () => {} };
    default:
      throw new Cannot(`the TypeScript SDK has no transport ${transport}`);
  }
}

// A connection that has been introduced.
async function connected(transport, target, seat, work) {
  const { stream, end } = open(transport, target);
  const connection = seat.app().connect(stream);
  try {
    const result = await connection.agent.request(methods.agent.initialize, {
      protocolVersion: PROTOCOL_VERSION,
      clientCapabilities: {},
    });
    tell("initialize", { result });
    if (result.protocolVersion !== 1) wrong(`the version is ${result.protocolVersion}`);
    return await work(connection.agent);
  } finally {
    connection.close();
    await end();
  }
}

async function begin(agent) {
  const result = await agent.request(methods.agent.session.new, { cwd: process.cwd(), mcpServers: [] });
  tell("session", { session: result.sessionId, result });
  return result.sessionId;
}

async function prompted(agent, sessionId, text) {
  const { stopReason } = await agent.request(methods.agent.session.prompt, {
    sessionId,
    prompt: [{ type: "text", text }],
  });
  tell("stop", { reason: stopReason });
  return stopReason;
}

async function cancelled(agent, seat, sessionId, text) {
  const turn = prompted(agent, sessionId, text);
  await Promise.race([seat.first, turn]);
  seat.cancelled = true;
  await agent.notify(methods.agent.session.cancel, { sessionId });
  const reason = await turn;
  if (reason !== "cancelled") wrong(`the turn ended with ${reason}`);
}

async function talked(agent, seat, sessionId, text, scenario) {
  const reason = await prompted(agent, sessionId, text);
  if (scenario !== "deny" && reason !== "end_turn") wrong(`the turn ended with ${reason}`);
  if (["permission", "deny"].includes(scenario) && seat.asked === 0) wrong("no permission was asked for");
  if (seat.updates.length === 0) wrong("the turn had no update");
}

async function list(agent, sessionId) {
  for (let cursor; ; ) {
    const page = await agent.request(methods.agent.session.list, { cwd: process.cwd(), cursor });
    tell("list", { result: page });
    if (page.sessions.some((info) => info.sessionId === sessionId)) return;
    cursor = page.nextCursor ?? wrong(`${sessionId} is not in the list`);
  }
}

async function play(transport, target, scenario, text = "good morning") {
  if (!SCENARIOS.includes(scenario)) throw new Cannot(`there is no scenario ${scenario}`);
  const seat = new Seat(scenario === "deny");
  const session = await connected(transport, target, seat, async (agent) => {
    const sessionId = await begin(agent);
    if (scenario === "list") await list(agent, sessionId);
    else if (scenario === "cancel") await cancelled(agent, seat, sessionId, text);
    else if (scenario !== "new") await talked(agent, seat, sessionId, text, scenario);
    return sessionId;
  });
  if (scenario !== "load") return;
  const again = new Seat(false);
  await connected(transport, target, again, async (agent) => {
    const params = { sessionId: session, cwd: process.cwd(), mcpServers: [] };
    tell("loaded", { session, result: await agent.request(methods.agent.session.load, params) });
    // Over HTTP the answer comes on another stream than the replay and may overtake the last of it.
    for (let tries = 0; tries < 500 && again.words().length < seat.words().length; tries++) await sleep(10);
  });
  if (again.words() !== seat.words()) {
    wrong(`the replay says ${JSON.stringify(again.words())} instead of ${JSON.stringify(seat.words())}`);
  }
}

const args = process.argv.slice(2);
if (args.length < 3 || args.length > 4) {
  console.error("usage: client stdio|http|ws TARGET SCENARIO [PROMPT]");
  process.exit(2);
}
setTimeout(() => (console.error("nothing comes any more"), process.exit(1)), PATIENCE_MS).unref();
try {
  await play(...args);
  process.exit(0);
} catch (error) {
  console.error(error?.message ?? String(error));
  if (error?.code !== undefined) console.error(JSON.stringify({ code: error.code, data: error.data }));
  process.exit(error instanceof Cannot ? 3 : 1);
}
