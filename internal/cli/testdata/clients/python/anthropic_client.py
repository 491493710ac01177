"""The official Anthropic client, which knows of the gateway by ANTHROPIC_BASE_URL alone."""
import asyncio
import os
import sys

import anthropic

ASK = {"model": "claude-haiku-4-5", "max_tokens": 100, "messages": [{"role": "user", "content": "What is the weather in Paris?"}]}
TOOLS = [{"name": "weather", "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}}}]


def expect(what, ok):
    if not ok:
        sys.exit(f"not as expected: {what}")


def raises(kind, status, call, code=None):
    try:
        call()
    except kind as e:
        said = e.body["error"]
        expect(f"{kind.__name__}: {e.status_code} {e.body}", type(e) is kind and e.status_code == status and said.get("code") in (code, None))
        return e
    sys.exit(f"no {kind.__name__}")


def messages(client):
    raw = client.messages.with_raw_response.create(**ASK)
    expect(f"headers {raw.headers}", raw.headers["x-sluice-wait-ms"].isdigit() and raw.headers["x-sluice-request-id"])
    answer = raw.parse()
    expect(answer, answer.content[0].text.startswith("sim:") and answer.usage.output_tokens == 64 and answer.stop_reason == "end_turn")

    with client.messages.stream(**ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    expect(final, final.content[0].text == text and text.startswith("sim:") and final.usage.output_tokens == 64)
    kinds = {e.type for e in client.messages.create(stream=True, **ASK)}
    expect(kinds, {"message_start", "content_block_delta", "message_delta", "message_stop"} <= kinds)


def tools(client):
    answer = client.messages.create(tools=TOOLS, **ASK)
    call = answer.content[0]
    expect(answer, answer.stop_reason == "tool_use" and call.name == "weather" and call.input["text"].startswith("sim:"))
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "rain"}]}
    turns = [*ASK["messages"], {"role": "assistant", "content": answer.content}, result]
    answer = client.messages.create(tools=TOOLS, **{**ASK, "messages": turns})
    expect(answer, answer.content[0].text.startswith("sim:"))
    with client.messages.stream(tools=TOOLS, **ASK) as stream:
        parts = "".join(e.partial_json for e in stream if e.type == "input_json")
        final = stream.get_final_message()
    expect(final, final.stop_reason == "tool_use" and final.content[0].input["text"] in parts)


def others(client):
    names = [m.id for m in client.models.list()]
    expect(names, ASK["model"] in names and client.models.retrieve(ASK["model"]).id == ASK["model"])
    counted = client.messages.count_tokens(model=ASK["model"], messages=ASK["messages"])
    expect(counted, counted.input_tokens == 8)
    counted = client.beta.messages.count_tokens(model=ASK["model"], messages=ASK["messages"], betas=["token-counting-2024-11-01"])
    expect(counted, counted.input_tokens == 8)
    answer = client.beta.messages.create(betas=["context-1m-2025-08-07"], **ASK)
    expect(answer, answer.content[0].text.startswith("sim:"))


def errors(client):
    ask = client.messages.create
    raises(anthropic.NotFoundError, 404, lambda: ask(**{**ASK, "model": "no-such-model"}), "model_not_found")
    raises(anthropic.NotFoundError, 404, lambda: client.models.retrieve("no-such-model"), "model_not_found")
    raises(anthropic.NotFoundError, 404, lambda: client.messages.batches.list(), "not_found")
    e = raises(anthropic.BadRequestError, 400, lambda: ask(**{**ASK, "messages": []}))
    expect(e.body, e.body["error"]["message"] == "messages: at least one message is required")  # the provider's own words
    raises(anthropic.BadRequestError, 400, lambda: list(ask(**{**ASK, "messages": []}, stream=True)))
    stranger = anthropic.Anthropic(api_key="sk-ant-of-nobody")
    raises(anthropic.AuthenticationError, 401, lambda: stranger.messages.create(**ASK), "invalid_api_key")
    once, scarce = client.with_options(max_retries=0).messages, {**ASK, "model": "scarce-claude"}
    once.create(**scarce)
    e = raises(anthropic.RateLimitError, 429, lambda: once.create(**scarce), "quota_exhausted")
    expect(e.response.headers, 50 < int(e.response.headers["retry-after"]) < 70)
    raises(anthropic.RateLimitError, 429, lambda: once.create(stream=True, **scarce), "quota_exhausted")


def early(client):
    """The head came long before the answer, and comments with it."""
    with client.messages.stream(**ASK) as stream:
        expect("the text", stream.get_final_text().startswith("sim:"))
    broken("upstream_refused", lambda: list(client.messages.create(**{**ASK, "messages": []}, stream=True)))


def cut(client):
    """Every answer breaks off in the middle."""
    parts = []
    broken("upstream_cut", lambda: parts.extend(client.messages.create(stream=True, **ASK)))
    expect(parts, len(parts) > 5)
    raises(anthropic.InternalServerError, 502, lambda: client.messages.create(**ASK), "upstream_failed")


def broken(code, call):
    try:
        call()
    except anthropic.APIStatusError as e:
        expect(e.body, e.body["error"]["code"] == code)
        return
    sys.exit(f"no {code}")


async def burst(**config):
    async with anthropic.AsyncAnthropic(**config) as client:
        async def one(i):
            ask = {**ASK, "messages": [{"role": "user", "content": f"What is special about {i}?"}]}
            if i % 2 == 0:
                return (await client.messages.create(**ask)).content[0].text
            async with client.messages.stream(**ask) as stream:
                return "".join([text async for text in stream.text_stream])

        texts = await asyncio.gather(*(one(i) for i in range(60)))
    expect(texts, len(set(texts)) == 60 and all(t.startswith("sim:") for t in texts))


if sys.argv[1] == "burst":
    retries = os.environ.get("MAX_RETRIES")
    asyncio.run(burst(**({"max_retries": int(retries)} if retries else {})))
else:
    checks = {"calls": (messages, tools, others, errors), "early": (early,), "cut": (cut,)}
    with anthropic.Anthropic() as client:
        for check in checks[sys.argv[1]]:
            check(client)
print("done")
