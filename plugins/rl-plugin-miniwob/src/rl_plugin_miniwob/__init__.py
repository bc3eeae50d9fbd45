"""The pages of MiniWoB++ in Chromium."""
