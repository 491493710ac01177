// Vercel's AI SDK, which knows of the gateway by OPENAI_BASE_URL and ANTHROPIC_BASE_URL alone.
import assert from "node:assert/strict";
import { anthropic, createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI, openai } from "@ai-sdk/openai";
import { APICallError, embedMany, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const isSim = (text) => assert.match(text, /^sim:/);

async function texts(model) {
  const { text, usage } = await generateText({ model, prompt: "hello" });
  isSim(text);
  assert.equal(usage.outputTokens, 64);
  const stream = streamText({ model, prompt: "hello" });
  let streamed = "";
  for await (const part of stream.textStream) streamed += part;
  isSim(streamed);
  assert.equal((await stream.usage).outputTokens, 64);
}

async function toolUse(model) {
  const used = [];
  const execute = async ({ text }) => (used.push(text), "rain");
  const weather = tool({ description: "Says what the weather is like.", inputSchema: z.object({ text: z.string() }), execute });
  const ask = { model, tools: { weather }, stopWhen: stepCountIs(3), prompt: "What is the weather in Paris?" };
  const { text, steps } = await generateText(ask);
  isSim(text);
  assert.equal(steps.length, 2);
  const stream = streamText(ask);
  isSim(await stream.text);
  assert.equal((await stream.steps).length, 2);
  assert.equal(used.length, 2);
  used.forEach(isSim);
}

async function errors() {
  const is = (status, code) => (e) => {
    assert.ok(APICallError.isInstance(e), `${e}`);
    assert.equal(e.statusCode, status);
    if (code) assert.equal(JSON.parse(e.responseBody).error.code, code);
    return true;
  };
  const ask = (model, more) => generateText({ model, prompt: "hello", maxRetries: 0, ...more });
  await assert.rejects(ask(openai.chat("no-such-model")), is(404, "model_not_found"));
  await assert.rejects(ask(anthropic("no-such-model")), is(404, "model_not_found"));
  await assert.rejects(ask(createOpenAI({ apiKey: "sk-of-nobody" })("gpt-4o-mini")), is(401, "invalid_api_key"));
  await assert.rejects(ask(createAnthropic({ apiKey: "sk-ant-of-nobody" })("claude-haiku-4-5")), is(401, "invalid_api_key"));
  isSim((await ask(openai.chat("scarce-gpt"))).text);
  await assert.rejects(ask(openai.chat("scarce-gpt")), (e) => {
    const after = Number(e.responseHeaders["retry-after"]);
    assert.ok(after > 50 && after < 70, `${after}`);
    return is(429, "quota_exhausted")(e);
  });
  let failure;
  for await (const part of streamText({ model: openai.chat("scarce-gpt"), prompt: "hello", maxRetries: 0, onError() {} }).fullStream) {
    if (part.type === "error") failure = part.error;
  }
  assert.ok(is(429, "quota_exhausted")(failure));
}

for (const model of [openai("gpt-4o-mini"), openai.chat("gpt-4o-mini"), anthropic("claude-haiku-4-5")]) {
  await texts(model);
  await toolUse(model);
}
const { embeddings } = await embedMany({ model: openai.embedding("text-embedding-3-small"), values: ["one", "other"] });
assert.deepEqual(embeddings.map((e) => e.length), [8, 8]);
assert.notDeepEqual(embeddings[0], embeddings[1]);
await errors();
console.log("done");
