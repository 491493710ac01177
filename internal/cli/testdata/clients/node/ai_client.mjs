// Vercel's AI SDK, which knows of the gateway by OPENAI_BASE_URL and ANTHROPIC_BASE_URL alone.
import assert from "node:assert/strict";
import { anthropic } from "@ai-sdk/anthropic";
import { openai } from "@ai-sdk/openai";
import { generateText, streamText } from "ai";

for (const model of [openai("gpt-4o-mini"), openai.chat("gpt-4o-mini"), anthropic("claude-haiku-4-5")]) {
  const { text, usage } = await generateText({ model, prompt: "hello" });
  assert.match(text, /^sim:/);
  assert.equal(usage.outputTokens, 64);
  const stream = streamText({ model, prompt: "hello" });
  let streamed = "";
  for await (const part of stream.textStream) streamed += part;
  assert.match(streamed, /^sim:/);
  assert.equal((await stream.usage).outputTokens, 64);
}
console.log("done");
