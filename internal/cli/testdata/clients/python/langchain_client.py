"""LangChain, which knows of the gateway by OPENAI_BASE_URL and ANTHROPIC_BASE_URL alone."""
import sys

import anthropic
import openai
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings


def expect(what, ok):
    if not ok:
        sys.exit(f"not as expected: {what}")


def raises(kind, status, call):
    try:
        call()
    except kind as e:
        expect(e, e.status_code == status)
        return e
    sys.exit(f"no {kind.__name__}")


@tool
def weather(text: str) -> str:
    """Says what the weather is like."""
    return "rain"


def whole(parts):
    found = None
    for part in parts:
        found = part if found is None else found + part
    return found


def chat(model):
    answer = model.invoke("hello")
    expect(answer, answer.text.startswith("sim:") and answer.usage_metadata["output_tokens"] == 64)
    answer = whole(model.stream("hello"))
    expect(answer, answer.text.startswith("sim:") and answer.usage_metadata["output_tokens"] == 64)
    answers = model.batch([f"What is special about {i}?" for i in range(5)])
    expect(answers, len({a.text for a in answers}) == 5 and all(a.text.startswith("sim:") for a in answers))


def tools(model):
    turns = [HumanMessage("What is the weather in Paris?")]
    with_tools = model.bind_tools([weather])
    said = with_tools.invoke(turns)
    call = said.tool_calls[0]
    expect(said, len(said.tool_calls) == 1 and call["name"] == "weather" and call["args"]["text"].startswith("sim:"))
    said_in_parts = whole(with_tools.stream(turns))
    expect(said_in_parts, said_in_parts.tool_calls[0]["args"]["text"].startswith("sim:"))
    result = weather.invoke(call)
    expect(result, isinstance(result, ToolMessage) and result.content == "rain")
    answer = with_tools.invoke([*turns, said, result])
    expect(answer, answer.text.startswith("sim:") and not answer.tool_calls)


class Errors:
    """What LangChain raises are the errors of the official clients below it."""

    def openai(self):
        raises(openai.NotFoundError, 404, lambda: ChatOpenAI(model="no-such-model").invoke("hello"))
        raises(openai.BadRequestError, 400, lambda: list(ChatOpenAI(model="gpt-4o-mini").stream([])))
        raises(openai.AuthenticationError, 401, lambda: ChatOpenAI(model="gpt-4o-mini", api_key="sk-of-nobody").invoke("hello"))
        once = ChatOpenAI(model="scarce-gpt", max_retries=0)
        once.invoke("hello")
        e = raises(openai.RateLimitError, 429, lambda: once.invoke("hello"))
        expect(e, e.code == "quota_exhausted" and 50 < int(e.response.headers["retry-after"]) < 70)

    def anthropic(self):
        raises(anthropic.NotFoundError, 404, lambda: ChatAnthropic(model="no-such-model").invoke("hello"))
        raises(anthropic.AuthenticationError, 401, lambda: ChatAnthropic(model="claude-haiku-4-5", api_key="sk-ant-of-nobody").invoke("hello"))
        once = ChatAnthropic(model="scarce-claude", max_retries=0)
        once.invoke("hello")
        raises(anthropic.RateLimitError, 429, lambda: list(once.stream("hello")))


for chat_model in (
    ChatOpenAI(model="gpt-4o-mini", stream_usage=True),
    ChatOpenAI(model="gpt-4o-mini", use_responses_api=True),
    ChatAnthropic(model="claude-haiku-4-5"),
):
    chat(chat_model)
    tools(chat_model)

# Without check_embedding_ctx_length=False it sends numbers of tokens in place of texts, by a table that it downloads.
found = OpenAIEmbeddings(model="text-embedding-3-small", check_embedding_ctx_length=False).embed_documents(["one", "other"])
expect(found, len(found) == 2 and len(found[1]) == 8 and found[0] != found[1])

Errors().openai()
Errors().anthropic()
print("done")
