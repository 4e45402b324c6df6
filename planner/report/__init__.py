"""The capacity report: an estimate as plain content, then as one HTML file or a PDF, with its case inside."""
