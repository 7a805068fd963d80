"""Everything about OpenCode: its processes, servers, protocols and configuration.

What OpenCode demands of model calls is below this room, with `goent.providers.gateway_errors` (errors
worded so that OpenCode does not retry) and `goent.providers.token_usage` (usage figures that it does
not take for a full window): the gateway, which answers OpenCode, may not import this room.
"""
