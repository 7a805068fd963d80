"""Decides who does a task: classification, rules, learning and forecasts."""
