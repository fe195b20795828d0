"""What people read: tables, notes, claims and figures, all from result dictionaries."""
