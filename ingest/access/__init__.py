"""Who may do what: the one step that every request passes."""
