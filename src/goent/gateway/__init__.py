"""The loopback server through which workers call models."""
