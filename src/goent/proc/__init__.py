"""The one room that starts processes; none outlives us."""
