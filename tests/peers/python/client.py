"""A client on the Python SDK of the Agent Client Protocol.

    client TRANSPORT TARGET SCENARIO [PROMPT]

TRANSPORT is stdio, http, h2c (HTTP/2 without TLS) or ws; TARGET a command line or a URL. INTERCOM_TOKEN is sent as a
bearer token where there are headers. A session works in the current directory.

new         begins a session
prompt      and prompts it; whatever it asks for is allowed
permission  the same, and something must be asked for
deny        the same, and all of it is denied
cancel      cancels the turn once it has said or asked something
load        after a turn, loads the session on another connection: the agent's words must be the same
list        looks for its session in the list of this directory, page by page

What it sees is printed, a JSON object a line. 0: all went as the scenario wants. 1: it did not, and a sentence on stderr
says why. 3: the SDK cannot do it.
"""

import asyncio
import contextlib
import json
import os
import shlex
import sys

from acp import PROTOCOL_VERSION, Client, RequestError, connect_to_agent, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

SCENARIOS = ["new", "prompt", "permission", "deny", "cancel", "load", "list"]
PATIENCE = 25


class Wrong(Exception):
    """Something that the scenario does not want."""


class Cannot(Exception):
    """Something that the SDK has no way to do."""


def plain(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def tell(saw, **fields):
    print(json.dumps({"saw": saw, **fields}), flush=True)


class Seat(Client):
    def __init__(self, deny):
        self.deny = deny
        self.updates = []
        self.asked = 0
        self.cancelled = False
        self.first = asyncio.Event()

    async def session_update(self, session_id, update, **_):
        update = plain(update)
        tell("update", session=session_id, update=update)
        self.updates.append(update)
        self.first.set()

    async def request_permission(self, session_id, tool_call, options, **_):
        self.asked += 1
        self.first.set()
        kinds = ["reject_once", "reject_always"] if self.deny else ["allow_once", "allow_always"]
        wanted = [option for kind in kinds for option in options if option.kind == kind]
        if self.cancelled or not wanted:
            outcome = DeniedOutcome(outcome="cancelled")
        else:
            outcome = AllowedOutcome(outcome="selected", option_id=wanted[0].option_id)
        request = {"sessionId": session_id, "toolCall": plain(tool_call), "options": [plain(o) for o in options]}
        tell("permission", request=request, answer=plain(outcome))
        return RequestPermissionResponse(outcome=outcome)

    def words(self):
        said = [update for update in self.updates if update["sessionUpdate"] == "agent_message_chunk"]
        return "".join(update["content"].get("text", "") for update in said)


@contextlib.asynccontextmanager
async def connected(transport, target, seat):
    """A connection that has been introduced."""
    token = os.environ.get("INTERCOM_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else None
    async with contextlib.AsyncExitStack() as stack:
        if transport == "stdio":
            # The SDK passes on only a few variables by itself.
            opened = spawn_agent_process(
                seat, *shlex.split(target), env=dict(os.environ), transport_kwargs={"stderr": sys.stderr}
            )
            agent, _ = await stack.enter_async_context(opened)
        else:
            agent = connect_to_agent(seat, await remote(transport, target, headers))
            stack.push_async_callback(agent.close)
        result = await agent.initialize(protocol_version=PROTOCOL_VERSION)
        tell("initialize", result=plain(result))
        if result.protocol_version != 1:
            raise Wrong(f"the version is {result.protocol_version}")
        yield agent


async def remote(transport, target, headers):
    if transport == "ws":
        from acp.ws import create_websocket_stream

        return await create_websocket_stream(target, headers=headers)
    from acp.http import create_http_stream

    if transport == "http":
        return create_http_stream(target, headers=headers)
    if transport == "h2c":
        import httpx

        client = httpx.AsyncClient(http1=False, http2=True, timeout=httpx.Timeout(None))
        return create_http_stream(target, client=client, headers=headers)
    raise Cannot(f"the Python SDK has no transport {transport}")


async def list_until_found(agent, session):
    cursor = None
    while True:
        page = await agent.list_sessions(cwd=os.getcwd(), cursor=cursor)
        tell("list", result=plain(page))
        if any(info.session_id == session for info in page.sessions):
            return
        cursor = page.next_cursor
        if not cursor:
            raise Wrong(f"{session} is not in the list")


async def cancelled(agent, seat, session, prompt):
    turn = asyncio.ensure_future(agent.prompt(session_id=session, prompt=[text_block(prompt)]))
    first = asyncio.ensure_future(seat.first.wait())
    await asyncio.wait([turn, first], return_when=asyncio.FIRST_COMPLETED)
    seat.cancelled = True
    await agent.cancel(session_id=session)
    answer = await turn
    tell("stop", reason=answer.stop_reason)
    if answer.stop_reason != "cancelled":
        raise Wrong(f"the turn ended with {answer.stop_reason}")


async def talked(agent, seat, session, prompt, scenario):
    answer = await agent.prompt(session_id=session, prompt=[text_block(prompt)])
    tell("stop", reason=answer.stop_reason)
    if scenario != "deny" and answer.stop_reason != "end_turn":
        raise Wrong(f"the turn ended with {answer.stop_reason}")
    if scenario in ("permission", "deny") and not seat.asked:
        raise Wrong("no permission was asked for")
    if not seat.updates:
        raise Wrong("the turn had no update")


async def play(transport, target, scenario, prompt):
    if scenario not in SCENARIOS:
        raise Cannot(f"there is no scenario {scenario}")
    seat = Seat(deny=scenario == "deny")
    async with connected(transport, target, seat) as agent:
        result = await agent.new_session(cwd=os.getcwd(), mcp_servers=[])
        session = result.session_id
        tell("session", session=session, result=plain(result))
        if scenario == "list":
            await list_until_found(agent, session)
        elif scenario == "cancel":
            await cancelled(agent, seat, session, prompt)
        elif scenario != "new":
            await talked(agent, seat, session, prompt, scenario)
    if scenario == "load":
        again = Seat(deny=False)
        async with connected(transport, target, again) as agent:
            result = await agent.load_session(cwd=os.getcwd(), session_id=session, mcp_servers=[])
            tell("loaded", session=session, result=plain(result))
            # Over HTTP the answer comes on another stream than the replay and may overtake the last of it.
            for _ in range(500):
                if len(again.words()) >= len(seat.words()):
                    break
                await asyncio.sleep(0.01)
        if again.words() != seat.words():
            raise Wrong(f"the replay says {again.words()!r} instead of {seat.words()!r}")


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit("usage: client stdio|http|h2c|ws TARGET SCENARIO [PROMPT]")
    prompt = sys.argv[4] if len(sys.argv) == 5 else "good morning"
    try:
        asyncio.run(asyncio.wait_for(play(*sys.argv[1:4], prompt), PATIENCE))
    except Cannot as reason:
        print(reason, file=sys.stderr)
        sys.exit(3)
    except RequestError as error:
        sys.exit(f"refused with {error.code}: {error}")
    except (Wrong, Exception) as sentence:
        sys.exit(f"{type(sentence).__name__}: {sentence}")


main()
