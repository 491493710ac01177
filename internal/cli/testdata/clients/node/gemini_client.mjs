// Google's client for Gemini, which knows of the gateway by GOOGLE_GEMINI_BASE_URL alone.
import assert from "node:assert/strict";
import { ApiError, GoogleGenAI, createPartFromFunctionResponse, createUserContent } from "@google/genai";

const model = "gemini-2.5-flash";
const isSim = (text) => assert.match(text, /^sim:/);
const client = new GoogleGenAI({ apiKey: process.env.GEMINI_API_KEY });

const answer = await client.models.generateContent({ model, contents: "hello" });
isSim(answer.text);
assert.equal(answer.usageMetadata.candidatesTokenCount, 64);
let text = "";
for await (const part of await client.models.generateContentStream({ model, contents: "hello" })) text += part.text ?? "";
assert.match(text, /^sim:.* and$/);

const parametersJsonSchema = { type: "object", properties: { text: { type: "string" } } };
const config = { tools: [{ functionDeclarations: [{ name: "weather", parametersJsonSchema }] }] };
const said = await client.models.generateContent({ model, contents: "hello", config });
assert.equal(said.functionCalls[0].name, "weather");
isSim(said.functionCalls[0].args.text);
const result = createUserContent(createPartFromFunctionResponse("call-1", "weather", { text: "rain" }));
const turns = [createUserContent("hello"), said.candidates[0].content, result];
isSim((await client.models.generateContent({ model, contents: turns, config })).text);
const calls = [];
for await (const part of await client.models.generateContentStream({ model, contents: "hello", config })) {
  calls.push(...(part.functionCalls ?? []));
}
assert.equal(calls.length, 1);
isSim(calls[0].args.text);

const { embeddings } = await client.models.embedContent({ model: "gemini-embedding-001", contents: ["one", "other"] });
assert.deepEqual(embeddings.map((e) => e.values.length), [8, 8]);
assert.equal((await client.models.countTokens({ model, contents: "hello, world" })).totalTokens, 3);
const names = [];
for await (const m of await client.models.list()) names.push(m.name);
assert.ok(names.includes(`models/${model}`));

const is = (status) => (e) => e instanceof ApiError && e.status === status;
await assert.rejects(client.models.generateContent({ model: "no-such-model", contents: "hello" }), is(404));
await assert.rejects(client.models.generateContent({ model, contents: "hello", config: { maxOutputTokens: -1 } }), is(400));
const stranger = new GoogleGenAI({ apiKey: "of-nobody" });
await assert.rejects(stranger.models.generateContent({ model, contents: "hello" }), is(401));
console.log("done");
