"""Money: prices, estimates, budgets, and the ledger of every model call.

`price_list` knows what a call costs, `token_estimate` how large it may be, `budget_rules` which budgets
hold it, and `call_accounts` enters it in the ledger. The values and ports are in `goent.domain.money`.
"""
