#!/usr/bin/env python3
"""Hosts each agent of a rig with intercom and judges what comes of it. `scripts/test-agents` calls this, in a network of its
own and beside the rig's model, and cleans up behind it.

The prompts are scripts for that model: `rig: write FILE TEXT ;; text Done` makes it use the agent's tool to write a file, and
then say "Done". What it was told in turn is in the files below DIR/model, one for each request.
"""
import argparse, datetime, http.client, json, os, random, re, shutil, signal, socket, subprocess, sys, time

WAIT = 60  # seconds that anything may take which is expected
PACKAGES = {
    "claude": "@agentclientprotocol/claude-agent-acp",
    "codex": "@agentclientprotocol/codex-acp",
    "gemini": "@google/gemini-cli",
    "opencode": "opencode-linux-x64",
}


class Failed(Exception):
    pass


class Cannot(Exception):
    """The agent has no such thing: nobody's failure."""


def must(held, what):
    if not held:
        raise Failed(what)


def wait(what, look, limit=WAIT):
    """The first true answer of `look`."""
    end = time.monotonic() + limit
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > end:
            raise Failed(f"no {what} within {limit} s")
        time.sleep(0.05)


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("intercom", timeout=WAIT)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemon:
    def __init__(self, intercom, directory, config):
        self.dir = directory
        self.flags = [intercom, "--config", directory + "/config.toml", "--state-dir", directory + "/state"]
        with open(directory + "/config.toml", "w") as file:
            file.write(config)
        self.process = None
        self.start()

    def start(self):
        with open(self.dir + "/daemon.err", "a") as errors:
            self.process = subprocess.Popen(
                [*self.flags, "serve", "--on-stop", "leave"], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, cwd=self.dir
            )
        wait("daemon", self.healthy)

    def healthy(self):
        must(self.process.poll() is None, f"the daemon ended: {(read(self.dir + '/daemon.err') or '')[-500:]}")
        try:
            return self.get("/health")
        except OSError:
            return None

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        for session in self.get("/sessions")["items"]:
            subprocess.run([*self.flags, "kill", session["id"]], capture_output=True, timeout=WAIT)
        self.process.terminate()
        self.process.wait(WAIT)

    def get(self, path):
        connection = Unix(self.dir + "/state/intercom.sock")
        try:
            connection.request("GET", "/api/v1" + path, headers={"Accept": "application/json"})
            answer = connection.getresponse()
            body = json.loads(answer.read())
        finally:
            connection.close()
        must(answer.status == 200, f"GET {path}: {answer.status} {body}")
        return body

    def cli(self, *words):
        """A verb as a person would use it."""
        done = subprocess.run([*self.flags, "--json", *words], capture_output=True, text=True, timeout=2 * WAIT, stdin=subprocess.DEVNULL)
        must(done.returncode == 0, f"`intercom {' '.join(words[:2])}` failed: {done.stderr.strip()} {done.stdout.strip()[:300]}")
        return json.loads(done.stdout) if done.stdout.strip() else None


class Session:
    def __init__(self, daemon, agent, workspace, mark):
        self.daemon, self.agent, self.workspace, self.mark = daemon, agent, workspace, mark
        self.events = []
        started = time.monotonic()
        self.id = daemon.cli("run", "--agent", agent, "--workspace", workspace, "--env", f"RIG_MARK={mark}")["id"]
        self.ready = self.wait("agent.ready", kind("agent.ready"))["data"]["agent"]
        self.took = time.monotonic() - started

    def look(self):
        """Reads what is new in the log."""
        while True:
            after = self.events[-1]["seq"] if self.events else 0
            page = self.daemon.get(f"/events?after={after}&session={self.id}&limit=1000")
            self.events += page["items"]
            if not page["items"]:
                return self.events

    def here(self):
        return len(self.look())

    def wait(self, what, fits, since=0, limit=WAIT):
        def found():
            events = self.look()[since:]
            ended = next((e for e in events if e["kind"] == "session.ended"), None)
            first = next((e for e in events if fits(e)), None)
            if first is None and ended:
                raise Failed(f"no {what}: the session ended, {ended['data']['reason']}")
            return first

        return wait(what, found, limit)

    def show(self):
        return self.daemon.get("/sessions/" + self.id)

    def send(self, text):
        since = self.here()
        self.daemon.cli("send", self.id, text)
        return since

    def words(self, since=0, sort="agent_message_chunk"):
        updates = (e["data"].get("update", {}) for e in self.look()[since:] if e["kind"] == "update")
        return "".join((u.get("content") or {}).get("text", "") for u in updates if u.get("sessionUpdate") == sort)

    def hears(self, words, since, limit=WAIT):
        wait(f"word {words!r} of the agent's", lambda: words in self.words(since), limit)

    def of(self, name, since=0):
        return [e for e in self.look()[since:] if e["kind"] == name]

    def asked(self, since):
        return self.wait("clearance", kind("clearance.requested"), since)["data"]

    def ended(self, since, limit=WAIT):
        """How the turn ended."""
        return self.wait("end of the turn", kind("turn.ended"), since, limit)["data"]["stop_reason"]

    def idle(self):
        wait("idle session", lambda: self.show()["phase"] == "idle")

    def talk(self, words="Hello"):
        """A whole turn that says something."""
        tag = f"{words}-{random.randrange(10**8)}"
        since = self.send(f"rig: text {tag}")
        reason = self.ended(since)
        must(reason == "end_turn", f"the turn ended with {reason!r}")
        self.hears(tag, since, 5)
        self.idle()
        return tag

    def decided(self, prompt, verb):
        """A turn whose clearances are all decided alike: the cards, and how it ended."""
        since, cards = self.send(prompt), []

        def new(event):
            known = [card["clearance"] for card in cards]
            asks = event["kind"] == "clearance.requested" and event["data"]["clearance"] not in known
            return asks or event["kind"] == "turn.ended"

        while True:
            event = self.wait("clearance or end of the turn", new, since)
            if event["kind"] == "turn.ended":
                self.idle()
                return cards, event["data"]["stop_reason"]
            cards.append(event["data"])
            answer = self.daemon.cli(verb, event["data"]["clearance"])
            must(answer["delivery"] == "delivered", f"the decision is {answer['delivery']}")


def kind(name):
    return lambda event: event["kind"] == name


def processes(mark, workspace):
    """What runs of an agent: by the mark in its environment, or by where it works."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                marked = f"RIG_MARK={mark}".encode() in file.read().split(b"\0")
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
            with open(f"/proc/{pid}/stat") as file:
                state = file.read().rpartition(")")[2].split()[0]
            inside = os.readlink(f"/proc/{pid}/cwd").startswith(workspace)
        except OSError:
            continue
        if (marked or inside or workspace in command) and state not in "ZX":
            found[int(pid)] = command
    return found


class Judge:
    """One agent, in a directory and with a daemon of its own."""

    def __init__(self, args, agent):
        self.agent, self.args = agent, args
        self.dir = f"{args.dir}/{agent}"
        self.workspace = self.dir + "/work"
        for directory in (self.workspace, self.dir + "/home", self.dir + "/t", self.dir + "/state"):
            os.makedirs(directory, mode=0o700)
        subprocess.run(["git", "init", "-q", self.workspace], check=False)
        tap = ["--tap", f"{args.keep}/{agent}.wire.jsonl"] if args.keep else []
        env = {"RIG_HOME": self.dir + "/home", "RIG_PORT": os.environ.get("RIG_PORT", "8399"), "TMPDIR": self.dir + "/t"}
        self.marks = 0
        launch = [args.rig + "/launch.py", *tap, agent]
        config = '[api]\nlisten = "off"\n'
        for name, words in ((agent, launch), (agent + "-load", [__file__, "--without-resume", *launch])):
            config += (
                f"[agents.{name}]\ncommand = {json.dumps(sys.executable)}\nargs = {json.dumps(words)}\n"
                f'protocol = "acp"\nstartup_timeout_seconds = 90\n'
                f"[agents.{name}.env]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in env.items())
            )
        self.daemon = Daemon(args.intercom, self.dir, config)
        self.session, self.sessions = None, []
        self.about = {"agent": agent, "version": self.version()}

    def version(self):
        package = read(f"{self.args.rig}/node_modules/{PACKAGES.get(self.agent, '-')}/package.json")
        return json.loads(package)["version"] if package else None

    def anew(self, profile=None):
        """The only session that runs, so that what runs is of it."""
        if self.session and self.session.show()["phase"] != "ended":
            self.daemon.cli("kill", self.session.id)
        self.marks += 1
        self.session = Session(self.daemon, profile or self.agent, self.workspace, f"{self.args.dir}.{self.agent}.{self.marks}")
        self.sessions.append(self.session)
        return self.session

    def any(self):
        """A session that is idle; the last one if it is."""
        if self.session and self.session.show()["phase"] == "idle":
            return self.session
        return self.anew()

    def file(self, name):
        return f"{self.workspace}/{name}"

    # The steps.

    def text(self):
        """a text turn"""
        session = self.anew()
        ready = session.ready
        self.about["start_seconds"] = round(session.took, 1)
        able = ready["initialize"].get("agentCapabilities") or {}
        self.about["load"] = bool(able.get("loadSession"))
        self.about["resume"] = "resume" in (able.get("sessionCapabilities") or {})
        self.about["steering"] = bool(((ready["initialize"].get("_meta") or {}).get("steering") or {}).get("supported"))
        session.talk()
        usage = session.of("turn.ended")[-1]["data"].get("params") or {}
        return "with usage" if usage.get("usage") or (usage.get("_meta") or {}).get("quota") else "no usage"

    def write(self, verb):
        session, name = self.any(), f"{verb}.txt"
        cards, reason = session.decided(f"rig: write {self.file(name)} hello ;; text Done", verb)
        must(cards, f"it never asked, and ended with {reason!r}")
        must(not reason.startswith("error"), f"the turn ended with {reason!r}")
        shown = cards[0]
        must(shown["file_path"] and shown["file_path"].endswith(name), f"the card has the path {shown['file_path']!r}")
        must(shown["tool"] == "edit", f"the card has the tool {shown['tool']!r}")
        content = read(self.file(name))
        if verb == "approve":
            must(content and content.strip() == "hello", f"the file has {content!r}")
        else:
            must(content is None, f"the file has {content!r}")
        return reason + ("" if shown["diff"] else ", no diff on the card")

    def write_approved(self):
        """a write, approved: the file is there"""
        return self.write("approve")

    def write_denied(self):
        """a write, denied: it is not"""
        return self.write("deny")

    def command(self, verb):
        session, name = self.any(), f"ran-{verb}.txt"
        command = f"touch {self.file(name)}"
        cards, reason = session.decided(f"rig: bash {command} ;; text Done", verb)
        must(cards, f"it never asked, and ended with {reason!r}")
        must(not reason.startswith("error"), f"the turn ended with {reason!r}")
        must(command in (cards[0]["command"] or ""), f"the card has the command {cards[0]['command']!r}")
        must(os.path.exists(self.file(name)) == (verb == "approve"), f"{name} is {'there' if verb == 'deny' else 'not there'}")
        return reason

    def command_approved(self):
        """a command, approved: it ran"""
        return self.command("approve")

    def command_denied(self):
        """a command, denied: it did not"""
        return self.command("deny")

    def interrupt(self):
        """an interrupt in a turn: it ends, and the next prompt works"""
        session = self.any()
        since = session.send("rig: slow 300 0.1 ;; text never")
        session.hears("tick-2", since)
        before = time.monotonic()
        self.daemon.cli("interrupt", session.id)
        reason = session.ended(since, 20)
        took = time.monotonic() - before
        must(reason == "cancelled", f"the turn ended with {reason!r}")
        session.talk("Again")
        return f"{took:.1f} s"

    def interrupt_asking(self):
        """an interrupt while a permission is open: withdrawn, nothing is done, the next prompt works"""
        session = self.any()
        since = session.send(f"rig: bash touch {self.file('interrupted')} ;; text Done")
        session.asked(since)
        self.daemon.cli("interrupt", session.id)
        reason = session.ended(since, 20)
        must(reason == "cancelled", f"the turn ended with {reason!r}")
        must(len(session.of("clearance.closed", since)) == 1, "the clearance is not withdrawn")
        session.talk("Again")
        must(not os.path.exists(self.file("interrupted")), "the command ran all the same")
        return reason

    def hold(self, session):
        """A command that stays, with a child that gets away from its group. Returns when both run."""
        number = random.randrange(10**6, 10**7)
        script, started = self.file(f"hold-{number}.sh"), self.file(f"held-{number}")
        with open(script, "w") as file:
            file.write(f"setsid sleep {number}1 &\necho > {started}\nsleep {number}2\n")
        since = session.send(f"rig: bash sh {script} ;; text Done")
        self.daemon.cli("approve", session.asked(since)["clearance"])
        wait("running command", lambda: os.path.exists(started))
        return since, lambda: {p: c for p, c in all_commands().items() if str(number) in c}

    def interrupt_running(self):
        """an interrupt while a command runs: the turn ends, the next prompt works"""
        session = self.any()
        since, held = self.hold(session)
        wait("its processes", lambda: len(held()) >= 2)
        self.daemon.cli("interrupt", session.id)
        reason = session.ended(since, 20)
        session.talk("Again")
        left = {c[-1] for c in held().values() if c.startswith("sleep")}
        self.daemon.cli("kill", session.id)
        must(not held(), f"left after the kill: {held()}")
        gone = "the command ran on" if "2" in left else "the command is gone"
        return f"{reason}; {gone}" + (", a child in a session of its own ran on" if "1" in left else "")

    def kill(self):
        """kill while a command runs: nothing is left"""
        session = self.anew()
        _, held = self.hold(session)
        wait("its processes", lambda: len(held()) >= 2)
        tree = processes(session.mark, self.workspace)
        shown = {p["pid"] for p in session.show()["processes"]}
        must(len(tree) >= 3, f"only {tree} were found")
        lost = [c for p, c in held().items() if p not in shown]
        must(not lost, f"`show` does not have {lost}")
        before = time.monotonic()
        self.daemon.cli("kill", session.id)
        took = time.monotonic() - before
        left = {**processes(session.mark, self.workspace), **held(), **{p: "of the tree" for p in tree if alive(p)}}
        must(not left, f"left: {left}")
        return f"{len(tree)} processes, {took:.1f} s"

    def daemon_killed(self):
        """the daemon killed with a permission open, approved after: delivered once, and the turn ends"""
        session = self.anew()
        since = session.send(f"rig: bash echo once >> {self.file('once.txt')} ;; text Done")
        clearance = session.asked(since)["clearance"]
        pid = session.show()["pid"]
        self.daemon.kill()
        self.daemon.start()
        must(self.daemon.get("/clearances/" + clearance)["status"] == "pending", "the clearance is not open any more")
        must(alive(pid), "the agent is gone")
        answer = self.daemon.cli("approve", clearance)
        must(answer["delivery"] == "delivered", f"the decision is {answer['delivery']}")
        reason = session.ended(since)
        must(reason == "end_turn", f"the turn ended with {reason!r}")
        must(read(self.file("once.txt")) == "once\n", f"the command's file has {read(self.file('once.txt'))!r}")
        for name in ("clearance.requested", "clearance.decided", "clearance.delivered", "turn.started", "turn.ended"):
            must(len(session.of(name, since)) == 1, f"{len(session.of(name, since))} times {name}")
        session.talk("Again")
        return reason

    def resume(self):
        """stop and resume: its own session goes on, nothing is logged twice, and a prompt works"""
        return self.again(self.agent)

    def load(self):
        """the same for an agent that can load, but not resume"""
        if not self.about.get("resume", True):
            raise Cannot("it cannot resume, so the step before is this one")
        return self.again(self.agent + "-load")

    def again(self, profile):
        session = self.anew(profile)
        first = session.talk("Remember")
        before = time.monotonic()
        stopped = self.daemon.cli("stop", session.id)
        took = time.monotonic() - before
        must(not processes(session.mark, self.workspace), "processes are left after the stop")
        since = session.here()
        self.daemon.cli("resume", session.id)
        ready = session.wait("second agent.ready", kind("agent.ready"), since)["data"]
        must(ready["generation"] == 2, f"generation {ready['generation']}")
        second = session.talk("Then")
        said, asked = session.words().count(first), session.words(0, "user_message_chunk").count(first)
        must(said == 1 and asked == 0, f"what was said before is {said} times in the log, what was asked {asked} times")
        how = f"stopped by {'+'.join(stopped.get('steps') or ['nothing'])} in {took:.1f} s"
        if not ready["agent"]["resumed"]:
            refused = [e["data"]["message"].get("error") for e in session.of("unknown", since)]
            refused = next((e for e in refused if e), None)
            must(refused or not (self.about.get("load") or self.about.get("resume")), "it was not tried")
            why = ((refused or {}).get("data") or {}).get("details") or (refused or {}).get("message")
            why = (why or "it can neither load nor resume").splitlines()[0]
            raise Cannot(f"a new session of the agent's: {why}; {how}")
        both = [r for r in map(read, self.requests()) if r and first in r and second in r]
        must(both, "its model was not told what was said before")
        return how

    def requests(self):
        directory = self.args.dir + "/model"
        return [f"{directory}/{name}" for name in sorted(os.listdir(directory))]

    def nudge(self):
        """a nudge in a turn reaches the agent"""
        session = self.any()
        since = session.send("rig: slow 80 0.1")
        session.hears("tick-2", since)
        tag = f"Nudged-{random.randrange(10**8)}"
        self.daemon.cli("nudge", session.id, f"rig: text {tag}")
        session.hears(tag, since)
        session.idle()
        turns = [e["data"]["stop_reason"] for e in session.of("turn.ended", since)]
        must(turns == (["end_turn"] if self.about.get("steering") else ["cancelled", "end_turn"]), f"the turns ended with {turns}")
        session.talk("Again")
        return "steered" if len(turns) == 1 else "cancelled and prompted"

    def run(self, only):
        results = {}
        for name in STEPS:
            if only and name not in only:
                continue
            before = time.monotonic()
            try:
                result, note = "ok", getattr(self, name)()
            except Cannot as error:
                result, note = "cannot", str(error)
            except (Failed, OSError, KeyError, ValueError, subprocess.SubprocessError) as error:
                result, note = "FAILED", str(error) if isinstance(error, Failed) else repr(error)
                self.dump(name)
            results[name] = {"result": result, "note": note, "seconds": round(time.monotonic() - before, 1)}
            print(f"{self.agent:9} {name:17} {result:7} {note or ''}", file=sys.stderr, flush=True)
        return results

    def dump(self, step):
        """The end of the log of the session at hand, for whoever wants to know why."""
        try:
            events = self.session.look()
        except (AttributeError, Failed, OSError):
            return
        for event in events[-12:]:
            print("   |", event["kind"], json.dumps(event["data"])[:300], file=sys.stderr)

    def end(self):
        if self.args.keep:
            for number, session in enumerate(self.sessions):
                with open(f"{self.args.keep}/{self.agent}.{number}.jsonl", "w") as file:
                    file.writelines(json.dumps(event) + "\n" for event in session.events)
            shutil.copy(self.dir + "/daemon.err", f"{self.args.keep}/{self.agent}.daemon.err")
        self.daemon.stop()
        wait("end of everything", lambda: not processes("-", self.dir), 10)


def without_resume(command):
    """Sits between an agent and its client, so that it seems unable to resume a session."""
    child = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE)  # stdin is its own
    for line in child.stdout:
        try:
            message = json.loads(line)
            del message["result"]["agentCapabilities"]["sessionCapabilities"]["resume"]
            line = json.dumps(message).encode() + b"\n"
        except (ValueError, KeyError, TypeError):
            pass
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    sys.exit(child.wait())


def all_commands():
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        command = read(f"/proc/{pid}/cmdline")
        if command and alive(pid):
            found[int(pid)] = command.replace("\0", " ").strip()
    return found


def alive(pid):
    stat = read(f"/proc/{pid}/stat")
    return bool(stat) and stat.rpartition(")")[2].split()[0] not in "ZX"


STEPS = [
    "text", "write_approved", "write_denied", "command_approved", "command_denied", "interrupt", "interrupt_asking",
    "interrupt_running", "kill", "daemon_killed", "resume", "load", "nudge",
]  # fmt: skip


def table(results):
    rows = [["", *results]]
    for step in STEPS:
        cells = [results[agent]["steps"].get(step, {}).get("result", "-") for agent in results]
        rows.append([getattr(Judge, step).__doc__, *cells])
    rows.append(["version", *[str(results[agent].get("version")) for agent in results]])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def main():
    if sys.argv[1:2] == ["--without-resume"]:
        without_resume(sys.argv[2:])
    parser = argparse.ArgumentParser()
    for flag in ("--intercom", "--rig", "--dir"):
        parser.add_argument(flag, required=True)
    parser.add_argument("--keep")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("agents", nargs="*")
    args = parser.parse_args()
    agents = args.agents or list(PACKAGES)
    for wrong in [a for a in agents if not re.fullmatch("[a-z0-9_-]+", a)] + [s for s in args.only if s not in STEPS]:
        sys.exit(f"what is {wrong!r}? steps: {', '.join(STEPS)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results = {}
    for agent in agents:
        results[agent] = {"steps": {}}
        judge = None
        try:
            judge = Judge(args, agent)
            results[agent]["steps"] = judge.run(args.only)
            results[agent].update(judge.about)
            judge.end()
        except (Failed, OSError, subprocess.SubprocessError) as error:
            results[agent]["steps"]["end"] = {"result": "FAILED", "note": repr(error), "seconds": 0}
            if judge:
                judge.daemon.kill()  # what is left is found by whoever called us
    print(table(results))
    for agent, result in results.items():
        for step, outcome in result["steps"].items():
            if outcome["result"] != "ok":
                print(f"{agent}: {step}: {outcome['result']}: {outcome['note']}")
    print(json.dumps({"date": datetime.date.today().isoformat(), "agents": results}))
    sys.exit(any(o["result"] == "FAILED" for r in results.values() for o in r["steps"].values()))


main()
