// The official Anthropic client, which knows of the gateway by ANTHROPIC_BASE_URL alone.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";

const model = "claude-haiku-4-5";
const ask = { model, max_tokens: 100, messages: [{ role: "user", content: "What is the weather in Paris?" }] };
const tools = [{ name: "weather", input_schema: { type: "object", properties: { text: { type: "string" } } } }];
const isSim = (text) => assert.match(text, /^sim:/);

async function messages(client) {
  const { data, response } = await client.messages.create(ask).withResponse();
  assert.match(response.headers.get("x-sluice-wait-ms"), /^\d+$/);
  isSim(data.content[0].text);
  assert.equal(data.usage.output_tokens, 64);

  let text = "";
  const stream = client.messages.stream(ask).on("text", (part) => (text += part));
  const final = await stream.finalMessage();
  isSim(text);
  assert.equal(final.content[0].text, text);
  assert.equal(final.usage.output_tokens, 64);
  const kinds = new Set();
  for await (const event of await client.messages.create({ ...ask, stream: true })) kinds.add(event.type);
  assert.ok(kinds.has("message_start") && kinds.has("message_stop"));
}

async function toolUse(client) {
  const { content, stop_reason } = await client.messages.create({ ...ask, tools });
  assert.equal(stop_reason, "tool_use");
  isSim(content[0].input.text);
  const result = { role: "user", content: [{ type: "tool_result", tool_use_id: content[0].id, content: "rain" }] };
  const turns = [...ask.messages, { role: "assistant", content }, result];
  isSim((await client.messages.create({ ...ask, tools, messages: turns })).content[0].text);
  isSim((await client.messages.stream({ ...ask, tools }).finalMessage()).content[0].input.text);
}

async function others(client) {
  const names = [];
  for await (const m of client.models.list()) names.push(m.id);
  assert.ok(names.includes(model));
  assert.equal((await client.models.retrieve(model)).id, model);
  assert.equal((await client.messages.countTokens({ model, messages: ask.messages })).input_tokens, 8);
  assert.equal((await client.beta.messages.countTokens({ model, messages: ask.messages })).input_tokens, 8);
  isSim((await client.beta.messages.create({ ...ask, betas: ["context-1m-2025-08-07"] })).content[0].text);
}

async function errors(client) {
  const is = (kind, status, code) => (e) => {
    assert.ok(e instanceof kind, `${e.constructor.name}: ${e.message}`);
    assert.deepEqual([e.status, e.error.error.code], [status, code]);
    return true;
  };
  await assert.rejects(client.messages.create({ ...ask, model: "no-such-model" }), is(Anthropic.NotFoundError, 404, "model_not_found"));
  await assert.rejects(client.models.retrieve("no-such-model"), is(Anthropic.NotFoundError, 404, "model_not_found"));
  await assert.rejects(client.messages.batches.list(), is(Anthropic.NotFoundError, 404, "not_found"));
  for (const stream of [false, true]) {
    await assert.rejects(client.messages.create({ ...ask, messages: [], stream }), is(Anthropic.BadRequestError, 400, undefined));
  }
  const stranger = new Anthropic({ apiKey: "sk-ant-of-nobody" });
  await assert.rejects(stranger.messages.create(ask), is(Anthropic.AuthenticationError, 401, "invalid_api_key"));
  const once = new Anthropic({ maxRetries: 0 }).messages;
  await once.create({ ...ask, model: "scarce-claude" });
  for (const stream of [false, true]) {
    await assert.rejects(once.create({ ...ask, model: "scarce-claude", stream }), (e) => {
      const after = Number(e.headers.get("retry-after"));
      assert.ok(after > 50 && after < 70, `${after}`);
      return is(Anthropic.RateLimitError, 429, "quota_exhausted")(e);
    });
  }
}

const all = async (stream) => {
  for await (const _ of await stream);
};
const broken = (code) => (e) => e instanceof Anthropic.APIError && e.error.error.code === code;

// early is of streams whose head came long before the answer, with comments.
async function early(client) {
  isSim(await client.messages.stream(ask).finalText());
  await assert.rejects(all(client.messages.create({ ...ask, messages: [], stream: true })), broken("upstream_refused"));
}

// cut is of answers that break off in the middle.
async function cut(client) {
  await assert.rejects(all(client.messages.create({ ...ask, stream: true })), broken("upstream_cut"));
  await assert.rejects(client.messages.create(ask), (e) => e.status === 502 && e.error.error.code === "upstream_failed");
}

async function burst(client) {
  const one = async (i) => {
    const it = { ...ask, messages: [{ role: "user", content: `What is special about ${i}?` }] };
    if (i % 2 === 0) return (await client.messages.create(it)).content[0].text;
    return (await client.messages.stream(it).finalMessage()).content[0].text;
  };
  const texts = await Promise.all(Array.from({ length: 60 }, (_, i) => one(i)));
  texts.forEach(isSim);
  assert.equal(new Set(texts).size, 60);
}

if (process.argv[2] === "burst") {
  await burst(new Anthropic(process.env.MAX_RETRIES ? { maxRetries: Number(process.env.MAX_RETRIES) } : {}));
} else {
  const checks = { calls: [messages, toolUse, others, errors], early: [early], cut: [cut] };
  for (const check of checks[process.argv[2]]) await check(new Anthropic());
}
console.log("done");
