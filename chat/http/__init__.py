"""Chat over HTTP for hub and spoke: routes, request and answer formats, streams, and the server."""
