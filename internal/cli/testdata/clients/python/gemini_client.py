"""Google's client for Gemini, which knows of the gateway by GOOGLE_GEMINI_BASE_URL alone."""
import sys

from google import genai
from google.genai import errors, types

MODEL = "gemini-2.5-flash"


def expect(what, ok):
    if not ok:
        sys.exit(f"not as expected: {what}")


def refused(client, code, **ask):
    try:
        client.models.generate_content(**ask)
    except errors.ClientError as e:
        expect(e, e.code == code)
        return
    sys.exit("no error")


client = genai.Client()
answer = client.models.generate_content(model=MODEL, contents="hello")
expect(answer, answer.text.startswith("sim:") and answer.usage_metadata.candidates_token_count == 64)
text = "".join(part.text or "" for part in client.models.generate_content_stream(model=MODEL, contents="hello"))
expect(text, text.startswith("sim:") and text.endswith(" and"))

weather = types.FunctionDeclaration(name="weather", parameters_json_schema={"type": "object", "properties": {"text": {"type": "string"}}})
config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[weather])])
answer = client.models.generate_content(model=MODEL, contents="hello", config=config)
call = answer.function_calls[0]
expect(answer, call.name == "weather" and call.args["text"].startswith("sim:"))
turns = [types.UserContent("hello"), answer.candidates[0].content, types.UserContent(types.Part.from_function_response(name="weather", response={"text": "rain"}))]
answer = client.models.generate_content(model=MODEL, contents=turns, config=config)
expect(answer, answer.text.startswith("sim:"))
calls = [c for part in client.models.generate_content_stream(model=MODEL, contents="hello", config=config) for c in part.function_calls or []]
expect(calls, len(calls) == 1 and calls[0].args["text"].startswith("sim:"))

found = client.models.embed_content(model="gemini-embedding-001", contents=["one", "other"])
expect(found, len(found.embeddings) == 2 and len(found.embeddings[1].values) == 8)
expect("tokens", client.models.count_tokens(model=MODEL, contents="hello, world").total_tokens == 3)
names = [m.name for m in client.models.list()]
expect(names, f"models/{MODEL}" in names and client.models.get(model=MODEL).name == f"models/{MODEL}")

refused(client, 404, model="no-such-model", contents="hello")
refused(client, 400, model=MODEL, contents="hello", config=types.GenerateContentConfig(max_output_tokens=-1))
refused(genai.Client(api_key="of-nobody"), 401, model=MODEL, contents="hello")
print("done")
