"""An app on Slack's own Python SDK. Connects by Socket Mode, acknowledges whatever comes and prints one JSON line for it.

The text of a command says what else it does, each with a line of its own that begins with "did":

post     posts a message with blocks, answers it in its thread, and changes it
modal    opens a modal with the command's trigger
home     publishes a home tab for who asked
upload   uploads a file into the thread of the last post
read     reads the thread and the channel, two messages a page
quit     ends

SLACK_API_URL, SLACK_APP_TOKEN and SLACK_BOT_TOKEN say where and who.
"""

import json
import os
import sys
import threading

from slack_sdk import WebClient
from slack_sdk.models.blocks import ActionsBlock, ButtonElement, InputBlock, PlainTextInputElement, SectionBlock
from slack_sdk.models.views import View
from slack_sdk.socket_mode import SocketModeClient
from slack_sdk.socket_mode.response import SocketModeResponse

API = os.environ["SLACK_API_URL"].rstrip("/") + "/"
CHANNEL = "C0MAIN"

done = threading.Event()
printing = threading.Lock()
last = {}


def say(**fields):
    with printing:
        print(json.dumps(fields), flush=True)


def buttons(text):
    return [
        SectionBlock(text=f"*{text}*"),
        ActionsBlock(elements=[ButtonElement(text="Allow", action_id="allow", value="yes", style="primary")]),
    ]


def post(web, _):
    posted = web.chat_postMessage(channel=CHANNEL, text="a card", blocks=buttons("a card"))
    last["ts"] = posted["ts"]
    for n in range(3):
        web.chat_postMessage(channel=CHANNEL, thread_ts=last["ts"], text=f"reply {n}")
    web.chat_update(channel=CHANNEL, ts=last["ts"], text="a card, changed", blocks=buttons("a card, changed"))
    say(did="post", ts=last["ts"])


def modal(web, request):
    reason = InputBlock(label="Why", block_id="why", element=PlainTextInputElement(action_id="reason"))
    view = View(type="modal", title="Reasons", submit="Send", close="Back", callback_id="why", private_metadata="m",
                notify_on_close=True, blocks=[reason])
    opened = web.views_open(trigger_id=request.payload["trigger_id"], view=view)
    say(did="modal", view=opened["view"]["id"])


def home(web, request):
    published = web.views_publish(user_id=request.payload["user_id"], view=View(type="home", blocks=buttons("home")))
    say(did="home", view=published["view"]["id"])


def upload(web, _):
    sent = web.files_upload_v2(channel=CHANNEL, thread_ts=last["ts"], filename="notes.txt", title="Notes",
                               content="all of the notes", initial_comment="here")
    say(did="upload", file=sent["file"]["id"])


def read(web, _):
    thread = [message["text"] for page in web.conversations_replies(channel=CHANNEL, ts=last["ts"], limit=2)
              for message in page["messages"]]
    channel = [message["text"] for page in web.conversations_history(channel=CHANNEL, limit=2)
               for message in page["messages"]]
    say(did="read", replies=thread, history=channel, user=web.auth_test()["user_id"])


JOBS = {"post": post, "modal": modal, "home": home, "upload": upload, "read": read}


def handle(client, request):
    client.send_socket_mode_response(SocketModeResponse(envelope_id=request.envelope_id))
    body = request.payload
    say(got=request.type, kind=body.get("event", body).get("type"), retry=request.retry_attempt, body=body)
    word = body.get("text") if request.type == "slash_commands" else None
    if word == "quit":
        done.set()
    elif word in JOBS:
        try:
            JOBS[word](client.web_client, request)
        except Exception as error:
            say(failed=word, error=str(error))


def raw(text):
    message = json.loads(text)
    if message.get("type") == "hello":
        say(hello=message)


def main():
    web = WebClient(token=os.environ["SLACK_BOT_TOKEN"], base_url=API)
    client = SocketModeClient(app_token=os.environ["SLACK_APP_TOKEN"], web_client=web, ping_interval=1,
                              on_message_listeners=[raw])
    client.socket_mode_request_listeners.append(handle)
    client.connect()
    done.wait()
    client.close()


if __name__ == "__main__":
    main()
    # The SDK's threads may still wait for a socket that nobody needs.
    sys.stdout.flush()
    os._exit(0)
