"""What becomes of a conversation that does not fit its model's window any more?

The model itself sums it up, and goes on from its summary; the records stay as they are.
"""

from msgspec.structs import replace

from goent.llm.talk import Image, Message, ModelRequest, Part, Reasoning, Text, ToolResult, ToolUse

FULL = 0.8  # of the window: from here on the next answers and results might not fit
USUAL_WINDOW = 128_000
LONGEST = 2_000  # characters of a tool's result that a summary needs
LETTERS = 3  # to a token, at the least that is likely

ASK = """\
Sum up this conversation so that you can go on with the work from your summary alone. Keep: what \
the user wants, in their words where they matter; decisions and why; what was done, with the files \
and commands; what is known of the code; what is left to do and what comes next. Leave out what \
no longer matters. Write nothing but the summary."""


def is_full(used: int, window: int | None) -> bool:
    return used > FULL * (window or USUAL_WINDOW)


def summary_request(request: ModelRequest, window: int | None) -> ModelRequest:
    """Ask for a summary of what the request holds, as one text that fits.

    Without tools, vendors refuse calls and results of tools: they are written out.
    """
    told = "\n\n".join(f"[{m.role}]\n{_written(m)}" for m in request.messages)
    room = int((window or USUAL_WINDOW) * FULL) * LETTERS
    if len(told) > room:
        told = f"{told[: room // 5]}\n[... cut ...]\n{told[-room * 4 // 5 :]}"
    asked = Text(text=f"{ASK}\n\n<conversation>\n{told}\n</conversation>")
    return replace(
        request, messages=(Message(role="user", parts=(asked,)),), tools=(), tool_choice=None
    )


def _written(message: Message) -> str:
    return "\n".join(filter(None, (_line(part) for part in message.parts)))


def _line(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case ToolUse():
            return f"(calls {part.name} with {_cut(part.arguments)})"
        case ToolResult():
            said = " ".join(each.text for each in part.parts if isinstance(each, Text))
            return f"({'failed' if part.is_error else 'result'}: {_cut(said)})"
        case Image():
            return "(a picture)"
        case Reasoning():
            return ""


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]} [...] {text[-LONGEST // 2 :]}"
