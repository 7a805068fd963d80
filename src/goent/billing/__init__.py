"""Prices, estimates, budgets, and the ledger of every model call."""
