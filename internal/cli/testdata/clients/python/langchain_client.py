"""LangChain, which knows of the gateway by OPENAI_BASE_URL and ANTHROPIC_BASE_URL alone."""
from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI

for model in (ChatOpenAI(model="gpt-4o-mini", stream_usage=True), ChatAnthropic(model="claude-haiku-4-5")):
    answer = model.invoke("hello")
    assert answer.text.startswith("sim:") and answer.usage_metadata["output_tokens"] == 64, answer
    whole = None
    for part in model.stream("hello"):
        whole = part if whole is None else whole + part
    assert whole.text.startswith("sim:") and whole.usage_metadata["output_tokens"] == 64, whole
print("done")
