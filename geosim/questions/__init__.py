"""What one asks of a scenario and a policy: sweeps over fields, what is required, what a change is worth."""
