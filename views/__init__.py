"""The pages of the app, one a question, and what they share (modules that begin with an underscore)."""
