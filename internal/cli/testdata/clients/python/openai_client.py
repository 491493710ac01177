"""The official OpenAI client, which knows of the gateway by OPENAI_BASE_URL alone."""
import asyncio
import json
import os
import sys

import openai

MODEL = "gpt-4o-mini"
ASK = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER = {"name": "weather", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": WEATHER}]


def expect(what, ok):
    if not ok:
        sys.exit(f"not as expected: {what}")


def raises(kind, code, status, call):
    try:
        call()
    except kind as e:
        expect(f"{kind.__name__}: {e.status_code} {e.code} {e.body}", type(e) is kind and e.status_code == status and code in (e.code, None))
        return e
    sys.exit(f"no {kind.__name__}")


def chat(client):
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=ASK)
    expect(f"headers {raw.headers}", raw.headers["x-sluice-wait-ms"].isdigit() and raw.headers["x-sluice-request-id"])
    answer = raw.parse()
    expect(answer, answer.choices[0].message.content.startswith("sim:") and answer.usage.completion_tokens == 64)

    chunks = list(client.chat.completions.create(model=MODEL, messages=ASK, stream=True))
    expect("a chunk that nobody asked for", all(c.choices and c.usage is None for c in chunks))
    expect(chunks[-1], chunks[-1].choices[0].finish_reason == "stop")
    text = "".join(c.choices[0].delta.content or "" for c in chunks)
    expect(text, text.startswith("sim:") and text.endswith(" and"))

    chunks = list(client.chat.completions.create(model=MODEL, messages=ASK, stream=True, stream_options={"include_usage": True}))
    expect(chunks[-1], not chunks[-1].choices and chunks[-1].usage.completion_tokens == 64)


def chat_tools(client):
    message = client.chat.completions.create(model=MODEL, messages=ASK, tools=TOOLS).choices[0].message
    call = message.tool_calls[0]
    expect(call, call.function.name == "weather" and json.loads(call.function.arguments)["text"].startswith("sim:"))
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    answer = client.chat.completions.create(model=MODEL, messages=[*ASK, message, result], tools=TOOLS)
    expect(answer, answer.choices[0].message.content.startswith("sim:"))

    with client.chat.completions.stream(model=MODEL, messages=ASK, tools=TOOLS) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    expect(done, len(done) == 1 and json.loads(done[0].arguments)["text"].startswith("sim:"))
    expect(final, final.finish_reason == "tool_calls" and final.message.tool_calls[0].function.arguments == done[0].arguments)


def responses(client):
    answer = client.responses.create(model=MODEL, input="hello")
    expect(answer, answer.status == "completed" and answer.output_text.startswith("sim:"))
    with client.responses.stream(model=MODEL, input="hello") as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    expect(final, final.output_text == text and text.startswith("sim:") and final.usage.output_tokens == 64)

    tools = [{"type": "function", "strict": False, **WEATHER}]
    call = client.responses.create(model=MODEL, input=ASK, tools=tools).output[0]
    expect(call, call.type == "function_call" and json.loads(call.arguments)["text"].startswith("sim:"))
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    answer = client.responses.create(model=MODEL, input=[*ASK, call.to_dict(), result], tools=tools)
    expect(answer, answer.output_text.startswith("sim:"))
    with client.responses.stream(model=MODEL, input=ASK, tools=tools) as stream:
        parts = "".join(e.delta for e in stream if e.type == "response.function_call_arguments.delta")
        final = stream.get_final_response()
    expect(final, final.output[0].arguments == parts and json.loads(parts)["text"].startswith("sim:"))


def others(client):
    names = [m.id for m in client.models.list()]
    expect(names, MODEL in names and client.models.retrieve(MODEL).id == MODEL)
    for encoding in ({}, {"encoding_format": "float"}):
        found = client.embeddings.create(model="text-embedding-3-small", input=["one", "other"], **encoding).data
        expect(found, len(found) == 2 and len(found[1].embedding) == 8 and found[0].embedding != found[1].embedding)


def errors(client):
    ask = client.chat.completions.create
    raises(openai.NotFoundError, "model_not_found", 404, lambda: ask(model="no-such-model", messages=ASK))
    raises(openai.NotFoundError, "model_not_found", 404, lambda: client.models.retrieve("no-such-model"))
    raises(openai.NotFoundError, "not_found", 404, lambda: client.files.list())
    e = raises(openai.BadRequestError, "missing_required_parameter", 400, lambda: ask(model=MODEL, messages=[]))
    expect(e.body, e.param == "messages")  # the provider's own words
    raises(openai.BadRequestError, "missing_required_parameter", 400, lambda: list(ask(model=MODEL, messages=[], stream=True)))
    stranger = openai.OpenAI(api_key="sk-of-nobody")
    raises(openai.AuthenticationError, "invalid_api_key", 401, lambda: stranger.chat.completions.create(model=MODEL, messages=ASK))
    once = client.with_options(max_retries=0).chat.completions
    once.create(model="scarce-gpt", messages=ASK)
    e = raises(openai.RateLimitError, "quota_exhausted", 429, lambda: once.create(model="scarce-gpt", messages=ASK))
    expect(e.response.headers, 50 < int(e.response.headers["retry-after"]) < 70)
    raises(openai.RateLimitError, "quota_exhausted", 429, lambda: once.create(model="scarce-gpt", messages=ASK, stream=True))


def early(client):
    """The head came long before the answer, and comments with it."""
    ask = client.chat.completions.create
    chunks = list(ask(model=MODEL, messages=ASK, stream=True))
    expect(chunks, "".join(c.choices[0].delta.content or "" for c in chunks).startswith("sim:"))
    events = list(client.responses.create(model=MODEL, input="hello", stream=True))
    expect(events, events[-1].type == "response.completed")
    broken(openai.APIError, "upstream_refused", lambda: list(ask(model=MODEL, messages=[], stream=True)))
    events = []
    try:
        events.extend(client.responses.create(model=MODEL, input=[], stream=True))
    except Exception:
        pass  # the connection is cut after the event
    expect(events, events[-1].type == "error" and events[-1].code == "upstream_refused")


def cut(client):
    """Every answer breaks off in the middle."""
    ask = client.chat.completions.create
    parts = []
    broken(openai.APIError, "upstream_cut", lambda: parts.extend(ask(model=MODEL, messages=ASK, stream=True)))
    expect(parts, len(parts) > 5)
    raises(openai.InternalServerError, "upstream_failed", 502, lambda: ask(model=MODEL, messages=ASK))


def broken(kind, code, call):
    try:
        call()
    except kind as e:
        expect(e, e.code == code)
        return
    sys.exit(f"no {code}")


async def burst(**config):
    async with openai.AsyncOpenAI(**config) as client:
        async def one(i):
            ask = dict(model=MODEL, messages=[{"role": "user", "content": f"What is special about {i}?"}])
            if i % 2 == 0:
                return (await client.chat.completions.create(**ask)).choices[0].message.content
            return "".join([c.choices[0].delta.content or "" async for c in await client.chat.completions.create(stream=True, **ask)])

        texts = await asyncio.gather(*(one(i) for i in range(60)))
    expect(texts, len(set(texts)) == 60 and all(t.startswith("sim:") for t in texts))


if sys.argv[1] == "burst":
    retries = os.environ.get("MAX_RETRIES")
    asyncio.run(burst(**({"max_retries": int(retries)} if retries else {})))
else:
    checks = {"calls": (chat, chat_tools, responses, others, errors), "early": (early,), "cut": (cut,)}
    with openai.OpenAI() as client:
        for check in checks[sys.argv[1]]:
            check(client)
print("done")
