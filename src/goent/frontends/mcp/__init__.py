"""The tools that a lead agent sees, over the Model Context Protocol."""
