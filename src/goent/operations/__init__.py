"""What every client can call, whatever it speaks."""
