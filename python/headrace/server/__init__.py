"""`headrace serve`: an HTTP server with OpenAI's and Anthropic's APIs. Needs headrace[server].

registry = ModelRegistry(AsyncLLM.load)
await registry.load("path/to/model")
app = create_app(ServerConfig(), registry)  # an ASGI app
"""

from headrace.server.app import create_app
from headrace.server.config import ServerConfig
from headrace.server.models import ModelRegistry

__all__ = ["ModelRegistry", "ServerConfig", "create_app"]
