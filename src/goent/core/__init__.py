"""The workers' lives: knows drivers, gateway and store only through ports."""
