"""Checks payloads for Slack with the models of Slack's own Python SDK.

    slack_validate.py FILE …

Each file has one JSON object a line, {"method": …, "body": …}. Every block and view in the bodies is parsed and validated;
what the SDK does not know is a failure. Prints how many there were, or each failure with its payload, and then ends with 1;
so does a run without any payload.
"""

import json
import logging
import sys

from slack_sdk.errors import SlackObjectFormationError
from slack_sdk.models.basic_objects import JsonObject
from slack_sdk.models.blocks import Block, BlockElement, TextObject
from slack_sdk.models.blocks.basic_components import ConfirmObject, Option, OptionGroup
from slack_sdk.models.views import View

# The SDK's own word for what it does not know is a line in the log and a block or element less.
logging.disable(logging.CRITICAL)

# Parts of rich text, which the SDK keeps as they are: those that its RichTextElementParts has.
RICH_PARTS = {"text", "link", "user", "usergroup", "channel", "emoji", "broadcast", "date", "color", "team"}


class Failure(Exception):
    pass


def validate(thing, at):
    if not isinstance(thing, JsonObject):
        return
    try:
        thing.validate_json()
    except SlackObjectFormationError as error:
        raise Failure(f"{at}: {error}") from error


def known(parsed, data, at):
    """The SDK leaves out what it does not know, and says so only in the log."""
    unknown = set(data) - set(parsed.attributes)
    if unknown:
        raise Failure(f"{at}: the SDK does not know {sorted(unknown)} of {data.get('type')!r}")


def element(data, at):
    """What is inside of a block: an element, or a text."""
    kind = data.get("type")
    if kind in ("plain_text", "mrkdwn"):
        validate(TextObject.parse(data), at)
        return
    parsed = BlockElement.parse(dict(data))
    if parsed is None:
        raise Failure(f"{at}: the SDK does not know the element {kind!r}")
    validate(parsed, at)
    known(parsed, data, at)
    if isinstance(data.get("confirm"), dict):
        validate(ConfirmObject.parse(dict(data["confirm"])), f"{at}.confirm")
    for option in data.get("options") or []:
        for parsed in Option.parse_all([dict(option)]) or []:
            validate(parsed, f"{at}.options")
    for group in data.get("option_groups") or []:
        for parsed in OptionGroup.parse_all([dict(group)]) or []:
            validate(parsed, f"{at}.option_groups")


def rich(data, at):
    for n, part in enumerate(data.get("elements", [])):
        here, kind = f"{at}.elements[{n}]", part.get("type")
        if kind in RICH_PARTS:
            continue
        parsed = BlockElement.parse(dict(part))
        if parsed is None or not kind.startswith("rich_text_"):
            raise Failure(f"{here}: the SDK does not know {kind!r} in rich text")
        validate(parsed, here)
        rich(part, here)


def block(data, at):
    try:
        parsed = Block.parse(dict(data))
    except Exception as error:
        raise Failure(f"{at}: {error}") from error
    if parsed is None:
        raise Failure(f"{at}: the SDK does not know the block {data.get('type')!r}")
    validate(parsed, at)
    known(parsed, data, at)
    if data["type"] == "rich_text":
        rich(data, at)
        return
    for name in ("text", "label", "hint", "title"):
        if isinstance(data.get(name), dict):
            element(data[name], f"{at}.{name}")
    for name in ("accessory", "element"):
        if data.get(name):
            element(data[name], f"{at}.{name}")
    for name in ("elements", "fields"):
        for n, one in enumerate(data.get(name) or []):
            element(one, f"{at}.{name}[{n}]")


def payload(line):
    """The number of blocks in it."""
    body = json.loads(line)["body"]
    blocks, at = body.get("blocks") or [], "blocks"
    view = body.get("view")
    if view:
        blocks, at = view.get("blocks") or [], "view.blocks"
        try:
            parsed = View(**view)
        except Exception as error:
            raise Failure(f"view: {error}") from error
        validate(parsed, "view")
    for n, data in enumerate(blocks):
        block(data, f"{at}[{n}]")
    return len(blocks)


def main(files):
    payloads = blocks = failures = 0
    for name in files:
        with open(name, encoding="utf-8") as file:
            for number, line in enumerate(filter(str.strip, file), 1):
                payloads += 1
                try:
                    blocks += payload(line)
                except Failure as failure:
                    failures += 1
                    print(f"{name}:{number}: {failure}\n    {line.strip()}")
    if failures or not payloads:
        print(f"{failures} of {payloads} payloads failed" if payloads else "there were no payloads")
        return 1
    print(f"{payloads} payloads, {blocks} blocks: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
