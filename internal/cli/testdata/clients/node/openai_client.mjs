// The official OpenAI client, which knows of the gateway by OPENAI_BASE_URL alone.
import assert from "node:assert/strict";
import OpenAI from "openai";

const model = "gpt-4o-mini";
const messages = [{ role: "user", content: "What is the weather in Paris?" }];
const weather = { name: "weather", parameters: { type: "object", properties: { text: { type: "string" } } } };
const tools = [{ type: "function", function: weather }];
const isSim = (text) => assert.match(text, /^sim:/);

async function chat(client) {
  const { data, response } = await client.chat.completions.create({ model, messages }).withResponse();
  assert.match(response.headers.get("x-sluice-wait-ms"), /^\d+$/);
  isSim(data.choices[0].message.content);
  assert.equal(data.usage.completion_tokens, 64);

  let text = "";
  for await (const chunk of await client.chat.completions.create({ model, messages, stream: true })) {
    assert.equal(chunk.choices.length, 1);
    assert.equal(chunk.usage ?? null, null);
    text += chunk.choices[0].delta.content ?? "";
  }
  isSim(text);

  let last;
  const withUsage = { model, messages, stream: true, stream_options: { include_usage: true } };
  for await (const chunk of await client.chat.completions.create(withUsage)) last = chunk;
  assert.equal(last.usage.completion_tokens, 64);
}

async function chatTools(client) {
  const { message } = (await client.chat.completions.create({ model, messages, tools })).choices[0];
  const call = message.tool_calls[0];
  isSim(JSON.parse(call.function.arguments).text);
  const result = { role: "tool", tool_call_id: call.id, content: "rain" };
  isSim((await client.chat.completions.create({ model, messages: [...messages, message, result], tools })).choices[0].message.content);

  const final = (await client.chat.completions.stream({ model, messages, tools }).finalChatCompletion()).choices[0];
  assert.equal(final.finish_reason, "tool_calls");
  isSim(JSON.parse(final.message.tool_calls[0].function.arguments).text);
}

async function responses(client) {
  isSim((await client.responses.create({ model, input: "hello" })).output_text);
  const stream = client.responses.stream({ model, input: "hello" });
  let text = "";
  for await (const event of stream) if (event.type === "response.output_text.delta") text += event.delta;
  isSim(text);
  assert.equal((await stream.finalResponse()).output_text, text);

  const functions = [{ type: "function", strict: false, ...weather }];
  const call = (await client.responses.create({ model, input: messages, tools: functions })).output[0];
  isSim(JSON.parse(call.arguments).text);
  const result = { type: "function_call_output", call_id: call.call_id, output: "rain" };
  isSim((await client.responses.create({ model, input: [...messages, call, result], tools: functions })).output_text);
  const final = await client.responses.stream({ model, input: messages, tools: functions }).finalResponse();
  isSim(JSON.parse(final.output[0].arguments).text);
}

async function others(client) {
  const names = [];
  for await (const m of client.models.list()) names.push(m.id);
  assert.ok(names.includes(model));
  assert.equal((await client.models.retrieve(model)).id, model);
  const { data } = await client.embeddings.create({ model: "text-embedding-3-small", input: ["one", "other"] });
  assert.deepEqual([data.length, data[1].embedding.length], [2, 8]);
  assert.ok(data.every(({ embedding }) => embedding.every((x) => Math.abs(x) <= 1)));
}

async function errors(client) {
  const ask = (more) => client.chat.completions.create({ model, messages, ...more });
  const is = (kind, status, code) => (e) => {
    assert.ok(e instanceof kind, `${e.constructor.name}: ${e.message}`);
    assert.deepEqual([e.status, e.code], [status, code]);
    return true;
  };
  await assert.rejects(ask({ model: "no-such-model" }), is(OpenAI.NotFoundError, 404, "model_not_found"));
  await assert.rejects(client.models.retrieve("no-such-model"), is(OpenAI.NotFoundError, 404, "model_not_found"));
  await assert.rejects(client.files.list(), is(OpenAI.NotFoundError, 404, "not_found"));
  for (const stream of [false, true]) {
    await assert.rejects(ask({ messages: [], stream }), is(OpenAI.BadRequestError, 400, "missing_required_parameter"));
  }
  const stranger = new OpenAI({ apiKey: "sk-of-nobody" });
  await assert.rejects(stranger.chat.completions.create({ model, messages }), is(OpenAI.AuthenticationError, 401, "invalid_api_key"));
  const once = new OpenAI({ maxRetries: 0 }).chat.completions;
  await once.create({ model: "scarce-gpt", messages });
  for (const stream of [false, true]) {
    await assert.rejects(once.create({ model: "scarce-gpt", messages, stream }), (e) => {
      const after = Number(e.headers.get("retry-after"));
      assert.ok(after > 50 && after < 70, `${after}`);
      return is(OpenAI.RateLimitError, 429, "quota_exhausted")(e);
    });
  }
}

const all = async (stream) => {
  for await (const _ of await stream);
};
const broken = (code) => (e) => e instanceof OpenAI.APIError && e.code === code;

// early is of streams whose head came long before the answer, with comments.
async function early(client) {
  isSim((await client.chat.completions.stream({ model, messages }).finalChatCompletion()).choices[0].message.content);
  isSim((await client.responses.stream({ model, input: "hello" }).finalResponse()).output_text);
  await assert.rejects(all(client.chat.completions.create({ model, messages: [], stream: true })), broken("upstream_refused"));
  await assert.rejects(all(client.responses.create({ model, input: [], stream: true })));
}

// cut is of answers that break off in the middle.
async function cut(client) {
  await assert.rejects(all(client.chat.completions.create({ model, messages, stream: true })), broken("upstream_cut"));
  await assert.rejects(client.chat.completions.create({ model, messages }), (e) => e.status === 502 && e.code === "upstream_failed");
}

async function burst(client) {
  const one = async (i) => {
    const ask = { model, messages: [{ role: "user", content: `What is special about ${i}?` }] };
    if (i % 2 === 0) return (await client.chat.completions.create(ask)).choices[0].message.content;
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...ask, stream: true })) text += chunk.choices[0].delta.content ?? "";
    return text;
  };
  const texts = await Promise.all(Array.from({ length: 60 }, (_, i) => one(i)));
  texts.forEach(isSim);
  assert.equal(new Set(texts).size, 60);
}

if (process.argv[2] === "burst") {
  await burst(new OpenAI(process.env.MAX_RETRIES ? { maxRetries: Number(process.env.MAX_RETRIES) } : {}));
} else {
  const checks = { calls: [chat, chatTools, responses, others, errors], early: [early], cut: [cut] };
  for (const check of checks[process.argv[2]]) await check(new OpenAI());
}
console.log("done");
