"""An agent on the Python SDK of the Agent Client Protocol. The first word of a prompt says what it does:

ask   asks for permission to run `make` and says `allowed OPTION`, `rejected OPTION` or `cancelled`
edit  the same for a change of `notes.txt` in the session's directory
wait  says `waiting` and does nothing until it is cancelled

Anything else is said back, a word a chunk.
"""

import asyncio
import os
from itertools import count

from acp import (
    PROTOCOL_VERSION,
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    run_agent,
    start_tool_call,
    tool_diff_content,
    update_agent_message_text,
    update_tool_call,
)
from acp.schema import AgentCapabilities, Implementation, PermissionOption, ToolCallUpdate

OPTIONS = [
    PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    PermissionOption(option_id="always", name="Yes, always", kind="allow_always"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class Session:
    def __init__(self, cwd):
        self.cwd = cwd
        self.cancelled = asyncio.Event()


class PeerAgent(Agent):
    def __init__(self):
        self.sessions = {}
        self.calls = count(1)

    def on_connect(self, conn):
        self.client = conn

    async def initialize(self, protocol_version, client_capabilities=None, client_info=None, **_):
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(),
            agent_info=Implementation(name="python-peer", title="Python peer", version="1.0.0"),
        )

    async def new_session(self, cwd, additional_directories=None, mcp_servers=None, **_):
        session_id = f"python-{len(self.sessions) + 1}"
        self.sessions[session_id] = Session(cwd)
        return NewSessionResponse(session_id=session_id)

    async def cancel(self, session_id, **_):
        if session_id in self.sessions:
            self.sessions[session_id].cancelled.set()

    async def prompt(self, session_id, prompt, **_):
        session = self.sessions.get(session_id)
        if session is None:
            raise RequestError.invalid_params({"sessionId": session_id})
        session.cancelled.clear()
        words = "".join(getattr(block, "text", "") for block in prompt).split()
        match words[:1]:
            case ["ask"]:
                await self.ask(session_id, "Run make", kind="execute", raw_input={"command": "make"})
            case ["edit"]:
                diff = tool_diff_content(os.path.join(session.cwd, "notes.txt"), "new\n", "old\n")
                await self.ask(session_id, "Edit notes.txt", kind="edit", content=[diff])
            case ["wait"]:
                await self.say(session_id, "waiting")
                await session.cancelled.wait()
            case _:
                for word in words:
                    await self.say(session_id, word + " ")
        return PromptResponse(stop_reason="cancelled" if session.cancelled.is_set() else "end_turn")

    async def ask(self, session_id, title, **details):
        call = f"call-{next(self.calls)}"
        await self.client.session_update(session_id, start_tool_call(call, title, status="pending", **details))
        wanted = ToolCallUpdate(tool_call_id=call, title=title, **details)
        answer = await self.client.request_permission(session_id, wanted, OPTIONS)
        if answer.outcome.outcome == "cancelled":
            allowed, said = False, "cancelled"
        else:
            allowed = answer.outcome.option_id != "no"
            said = f"{'allowed' if allowed else 'rejected'} {answer.outcome.option_id}"
        status = "completed" if allowed else "failed"
        await self.client.session_update(session_id, update_tool_call(call, status=status))
        await self.say(session_id, said)

    async def say(self, session_id, text):
        await self.client.session_update(session_id, update_agent_message_text(text))


asyncio.run(run_agent(PeerAgent()))
