"""Sends requests by the openai SDK: sdk.py URL REQUESTS RETRIES AT_ONCE prints [rejections, failed requests]."""
import asyncio, json, sys

import openai


async def main(url, n, retries, at_once):
    rejected = failed = 0
    open_now = asyncio.Semaphore(at_once)

    class Counting(openai.DefaultAsyncHttpxClient):
        async def send(self, *args, **kwargs):
            nonlocal rejected
            response = await super().send(*args, **kwargs)
            rejected += response.status_code != 200
            return response

    async with openai.AsyncOpenAI(base_url=url, api_key="sk-none", max_retries=retries, http_client=Counting()) as client:
        async def one(i):
            nonlocal failed
            async with open_now:
                try:
                    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": f"Say {i}"}])
                except openai.OpenAIError:
                    failed += 1
        await asyncio.gather(*map(one, range(n)))
    print(json.dumps([rejected, failed]))


asyncio.run(main(sys.argv[1], *map(int, sys.argv[2:])))
