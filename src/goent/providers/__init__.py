"""Model calls: dialects, connections, failover and health."""
