"""What holds each document's numbers: one module a page, or a few small pages."""
