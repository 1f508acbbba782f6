"""The command line: one file a verb, no logic. Results on stdout, progress and diagnostics on stderr."""

INTERRUPTED = "forerun: interrupted; nothing half-written was left"

#: exit code of a command that Ctrl-C ended
INTERRUPTED_CODE = 130
