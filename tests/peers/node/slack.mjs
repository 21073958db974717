// An app on Slack's own Node SDKs. Connects by Socket Mode, acknowledges whatever comes and prints one JSON line for it.
//
// The text of a command says what else it does, each with a line of its own that begins with "did":
//
// post     posts a message with blocks, answers it in its thread, and changes it
// modal    opens a modal with the command's trigger
// home     publishes a home tab for who asked
// upload   uploads a file into the thread of the last post
// read     reads the thread and the channel, two messages a page
// quit     ends
//
// SLACK_API_URL, SLACK_APP_TOKEN and SLACK_BOT_TOKEN say where and who.

import { LogLevel, SocketModeClient } from "@slack/socket-mode";
import { WebClient } from "@slack/web-api";

const slackApiUrl = `${process.env.SLACK_API_URL.replace(/\/$/, "")}/`;
const channel = "C0MAIN";
const web = new WebClient(process.env.SLACK_BOT_TOKEN, { slackApiUrl, logLevel: LogLevel.ERROR });
// How long the SDK waits before it connects again is this time as well.
const client = new SocketModeClient({
  appToken: process.env.SLACK_APP_TOKEN,
  clientPingTimeout: 500,
  logLevel: LogLevel.ERROR,
  clientOptions: { slackApiUrl },
});
let last;

const say = (fields) => process.stdout.write(`${JSON.stringify(fields)}\n`);

const buttons = (text) => [
  { type: "section", text: { type: "mrkdwn", text: `*${text}*` } },
  {
    type: "actions",
    elements: [
      { type: "button", text: { type: "plain_text", text: "Allow" }, action_id: "allow", value: "yes", style: "primary" },
    ],
  },
];

const plain = (text) => ({ type: "plain_text", text });

const jobs = {
  async post() {
    const posted = await web.chat.postMessage({ channel, text: "a card", blocks: buttons("a card") });
    last = posted.ts;
    for (let n = 0; n < 3; n += 1) {
      await web.chat.postMessage({ channel, thread_ts: last, text: `reply ${n}` });
    }
    await web.chat.update({ channel, ts: last, text: "a card, changed", blocks: buttons("a card, changed") });
    say({ did: "post", ts: last });
  },

  async modal(body) {
    const element = { type: "plain_text_input", action_id: "reason" };
    const view = {
      type: "modal",
      title: plain("Reasons"),
      submit: plain("Send"),
      close: plain("Back"),
      callback_id: "why",
      private_metadata: "m",
      notify_on_close: true,
      blocks: [{ type: "input", block_id: "why", label: plain("Why"), element }],
    };
    const opened = await web.views.open({ trigger_id: body.trigger_id, view });
    say({ did: "modal", view: opened.view.id });
  },

  async home(body) {
    const published = await web.views.publish({ user_id: body.user_id, view: { type: "home", blocks: buttons("home") } });
    say({ did: "home", view: published.view.id });
  },

  async upload() {
    const sent = await web.files.uploadV2({
      channel_id: channel,
      thread_ts: last,
      filename: "notes.txt",
      title: "Notes",
      content: "all of the notes",
      initial_comment: "here",
    });
    say({ did: "upload", file: sent.files[0].files[0].id });
  },

  async read() {
    const replies = [];
    for await (const page of web.paginate("conversations.replies", { channel, ts: last, limit: 2 })) {
      replies.push(...page.messages.map((message) => message.text));
    }
    const history = [];
    for await (const page of web.paginate("conversations.history", { channel, limit: 2 })) {
      history.push(...page.messages.map((message) => message.text));
    }
    say({ did: "read", replies, history, user: (await web.auth.test()).user_id });
  },
};

client.on("connected", () => say({ hello: {} }));
client.on("slack_event", async ({ ack, type, body, retry_num }) => {
  await ack();
  say({ got: type, kind: (body.event ?? body).type, retry: retry_num, body });
  const word = type === "slash_commands" ? body.text : undefined;
  if (word === "quit") {
    await client.disconnect();
    process.exit(0);
  }
  await jobs[word]?.(body).catch((error) => say({ failed: word, error: String(error) }));
});
await client.start();
