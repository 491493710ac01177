"""slowapi's limiter before a back end: slow.py PORT BACKEND."""
import sys

import httpx2 as httpx
import uvicorn
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

limiter = Limiter(key_func=get_remote_address, headers_enabled=True)
back = httpx.AsyncClient(base_url=f"http://127.0.0.1:{sys.argv[2]}", limits=httpx.Limits(max_connections=None), timeout=60)


@limiter.limit("100/10seconds")
async def forward(request):
    answer = await back.post(request.url.path, content=await request.body())
    return Response(answer.content, answer.status_code, media_type="application/json")


app = Starlette(routes=[Route("/{path:path}", forward, methods=["POST"])], exception_handlers={RateLimitExceeded: _rate_limit_exceeded_handler})
app.state.limiter = limiter
uvicorn.run(app, port=int(sys.argv[1]), log_level="critical")
