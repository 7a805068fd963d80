"""JSON-RPC 2.0 on byte streams."""
