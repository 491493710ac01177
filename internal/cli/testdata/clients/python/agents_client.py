"""OpenAI's Agents SDK, which knows of the gateway by OPENAI_BASE_URL alone."""
import asyncio
import sys

import openai
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled

set_tracing_disabled(True)  # it would send what was asked and answered to OpenAI, past the gateway
used = []


def expect(what, ok):
    if not ok:
        sys.exit(f"not as expected: {what}")


@function_tool
def weather(text: str) -> str:
    """Says what the weather is like."""
    used.append(text)
    return "rain"


def agent(model, **config):
    return Agent(name="reporter", instructions="Say what the weather is like.", model=model, **config)


async def main():
    # By default it speaks the Responses API; a model of its own makes it speak chat completions.
    for model in ("gpt-4o-mini", OpenAIChatCompletionsModel("gpt-4o-mini", openai.AsyncOpenAI())):
        result = await Runner.run(agent(model), "What is the weather in Paris?")
        expect(result, result.final_output.startswith("sim:"))

        used.clear()
        result = await Runner.run(agent(model, tools=[weather]), "What is the weather in Paris?")
        expect((used, result), len(used) == 1 and used[0].startswith("sim:") and result.final_output.startswith("sim:"))
        expect(result.raw_responses, len(result.raw_responses) == 2)

        used.clear()
        streamed = Runner.run_streamed(agent(model, tools=[weather]), "What is the weather in Paris?")
        text = ""
        async for event in streamed.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                text += event.data.delta
        expect((used, text), len(used) == 1 and text == streamed.final_output and text.startswith("sim:"))

    for model, kind, status in (("no-such-model", openai.NotFoundError, 404), ("scarce-gpt", openai.RateLimitError, 429)):
        try:
            for _ in range(2):
                once = openai.AsyncOpenAI(max_retries=0)
                await Runner.run(agent(OpenAIChatCompletionsModel(model, once)), "hello")
        except openai.APIStatusError as e:
            expect(e, type(e) is kind and e.status_code == status)
        else:
            sys.exit(f"no {kind.__name__}")


asyncio.run(main())
print("done")
