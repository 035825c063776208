"""The hub, opened and served: HTTP, MCP, WebSocket, Wyoming; settings of the machine, metrics."""
