"""Values, events, errors and ports: the words every other room speaks. Imports nothing of ours."""
