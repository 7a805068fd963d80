"""Several tasks together: started, retried, merged and reported as one."""
